import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import packageJson from '../../../package.json' with { type: 'json' };
import { bundle } from '../../../scripts/build.ts';
import { type Component, componentsOf, thirdPartyNotices } from '../../../scripts/packaging/components.ts';
import { manual } from '../../../scripts/packaging/manual.ts';
import { OWN_PLATFORM } from '../../../scripts/packaging/platforms.ts';
import { isNode, sbom } from '../../../scripts/packaging/sbom.ts';
import { COMMANDS } from '../../../src/app/subcommands.ts';
import { ACCEPTED_FLAGS } from '../../../src/config/accepted.ts';
import { FLAGS } from '../../../src/config/flags.ts';

const ROOT = join(import.meta.dirname, '../../..');

/** `-v`, `--dataplane` */
const flagNames = Object.keys(FLAGS).map((name) => (name.length === 1 ? `-${name}` : `--${name}`));

describe('the man page', () => {
  const page = manual(COMMANDS, { version: '1.2.3', epoch: 86_400 });
  const plain = page.replaceAll('\\-', '-').replaceAll(/\\f[BIR]/g, '');

  test('has every flag and every subcommand with its options', () => {
    const lines = new Set(plain.split('\n').map((line) => line.split(/[= ]/)[0]));
    assert.deepEqual(
      flagNames.filter((name) => !lines.has(name)),
      [],
    );
    assert.deepEqual(
      Object.keys(ACCEPTED_FLAGS).filter((name) => !plain.includes(`--${name}`)),
      [],
    );
    for (const { name, options } of COMMANDS) {
      const section = plain.split(`.SS ${name}`)[1]?.split(/\n\.S[SH] /)[0] ?? '';
      assert.deepEqual(
        Object.keys(options).filter((option) => !section.includes(`\n--${option}`)),
        [],
        name,
      );
    }
  });

  test('shows what can be chosen, and what applies by itself', () => {
    assert.match(plain, /\n--dataplane=auto\|fast\|node\n.*\(default: auto\)\n/);
    assert.match(plain, /\n--cleanup\nremove every rule/);
    assert.match(plain, /^\.TH KUBE-USERSPACE-PROXY 8 1970-01-02 "kube-userspace-proxy 1\.2\.3"/);
  });

  test('no line of its text is a request, and every dash can be copied', () => {
    const requests = new Set(['.TH', '.SH', '.SS', '.TP', '.PP', '.B', '.BR', '.br']);
    assert.deepEqual(
      page.split('\n').filter((line) => /^[.']/.test(line) && !requests.has(line.split(' ')[0] ?? '')),
      [],
    );
    const text = page.split('\n').filter((line) => !line.startsWith('.TH'));
    assert.deepEqual(
      text.filter((line) => /(?<!\\)-/.test(line)),
      [],
    );
  });
});

describe('of what others have made', () => {
  let components: readonly Component[];

  before(async () => {
    components = componentsOf(ROOT, (await bundle()).packages, OWN_PLATFORM);
  });

  test('the notices hold the text of the license of each', () => {
    const silent = components.filter(({ notices, name }) => notices.length === 0 && !name.startsWith('@koromix/'));
    assert.deepEqual(
      silent.map(({ name }) => name),
      [],
    );
    const text = thirdPartyNotices(components);
    const node = components.find(isNode);
    assert.ok(text.includes(`\n${node?.name} ${node?.version} (`));
    assert.ok(text.includes('Copyright Node.js contributors'));
    // Without a file of that kind, heads of sources: two licenses in this package.
    const protobuf = components.find(({ name }) => name === '@bufbuild/protobuf');
    for (const part of ['Buf Technologies', 'Google Inc', 'Redistributions in binary form', 'Apache License']) {
      assert.ok(protobuf?.notices.join().includes(part), part);
    }
  });

  describe('the bill of materials', () => {
    const executable = { name: 'program', sha256: 'ab', epoch: 86_400 };
    let text: string;
    let document: Bill;

    before(() => {
      text = sbom(ROOT, executable, components);
      document = JSON.parse(text);
    });

    test('has all of it and nothing else, with license and checksum', () => {
      assert.deepEqual(
        document.components.map((component) => component['bom-ref']).sort(),
        components.map(({ name, version }) => `${name}@${version}`),
      );
      for (const { name, purl, licenses, hashes } of document.components) {
        assert.match(purl ?? '', /^pkg:(npm|generic)\//, name);
        assert.match(licenses[0]?.license?.id ?? licenses[0]?.expression ?? '', /^[A-Z0-9(]/, name);
        assert.match(`${hashes[0]?.alg} ${hashes[0]?.content}`, /^SHA-512 [0-9a-f]{128}$/, name);
      }
    });

    test('has Node as scanners know it, for this platform only', () => {
      const [node, ...others] = document.components.filter(({ type }) => type === 'platform');
      assert.deepEqual(others, []);
      assert.equal(node?.name, 'node');
      assert.equal(node?.purl, `pkg:generic/node@${process.versions.node}`);
      assert.match(node?.cpe ?? '', /^cpe:2\.3:a:nodejs:node\.js:\d+\.\d+\.\d+:\*/);
    });

    test('is about the executable, and not a package of the registry', () => {
      const { name, version, type, hashes, purl } = document.metadata.component;
      assert.deepEqual([name, version, type], ['program', packageJson.version, 'application']);
      assert.deepEqual(hashes, [{ alg: 'SHA-256', content: 'ab' }]);
      assert.equal(purl, undefined);
    });

    test('says by way of what each got in', () => {
      const needs = new Map(document.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]));
      const reached = new Set([document.metadata.component['bom-ref']]);
      for (const reference of reached) {
        const needed = needs.get(reference);
        assert.ok(needed, reference);
        for (const other of needed) reached.add(other);
      }
      assert.equal(reached.size, components.length + 1);
      assert.equal(needs.size, reached.size);
    });

    test('is of the same bytes each time', () => {
      assert.equal(sbom(ROOT, executable, components), text);
      assert.equal(document.metadata.timestamp, '1970-01-02T00:00:00.000Z');
    });
  });
});

interface Item {
  readonly 'bom-ref': string;
  readonly name: string;
  readonly version: string;
  readonly type: string;
  readonly purl?: string;
  readonly cpe?: string;
  readonly licenses: readonly { readonly license?: { readonly id: string }; readonly expression?: string }[];
  readonly hashes: readonly { readonly alg: string; readonly content: string }[];
}

interface Bill {
  readonly metadata: { readonly timestamp: string; readonly component: Item };
  readonly components: readonly Item[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}
