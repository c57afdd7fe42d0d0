import assert from 'node:assert/strict';
import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Environment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import type { ProxyProcess } from '../proxy.ts';
import { NODE_ADDRESS } from '../topology.ts';

const GOLDEN = fileURLToPath(new URL('../../golden', import.meta.url));

describe(`the rules that iptables-${FLAVOUR}-save shows`, () => {
  let environment: Environment;
  let proxy: ProxyProcess | undefined;

  before(async () => {
    environment = await Environment.create();
  });

  afterEach(() => environment.stopProxy(proxy));

  after(() => environment.remove());

  for (const bind of ['0.0.0.0', NODE_ADDRESS]) {
    test(`are those of kube-proxy 1.20's userspace mode, bound to ${bind}`, async () => {
      cpSync(join(GOLDEN, 'services.yaml'), join(environment.manifests.directory, 'services.yaml'));
      proxy = await environment.startProxy({ args: ['--bind-address', bind] });
      const golden = readFileSync(join(GOLDEN, `kube-proxy-userspace-bind-${bind}.rules`), 'utf8').split('\n');
      const installed = [...(await environment.iptables.save('nat')), ...(await environment.iptables.save('filter'))];
      assert.deepEqual(comparable(installed), comparable(golden));
      assertOnePortEach(installed);
    });
  }
});

/**
 * Port numbers become the name of their Service port, and rules of a chain are sorted: `apart from port numbers,
 * counters and the order of rules within a chain`. Jumps keep their order, which is part of the behaviour.
 */
function comparable(lines: readonly string[]): string[] {
  const ours = lines
    .map((line) => line.trim().replace(/ \[\d+:\d+\]$/, ''))
    // The API server made this one; there is no API server here.
    .filter((line) => line !== '' && !line.includes('default/kubernetes:https'));
  const isJump = (line: string) => /^-A (PREROUTING|OUTPUT|INPUT) /.test(line);
  const chains = ours.filter((line) => line.startsWith(':') || line.startsWith('*'));
  const rules = ours.filter((line) => line.startsWith('-A ') && !isJump(line));
  return [...chains.sort(), ...ours.filter(isJump), ...rules.map(withoutPortNumbers).sort()];
}

function withoutPortNumbers(rule: string): string {
  const name = /--comment "?([^" ]+)/.exec(rule)?.[1] ?? '';
  return rule
    .replace(/(--to-ports |--to-destination \S+:)(<[^>]+>|\d+)$/, `$1<${name}>`)
    .replace(/^(-A KUBE-NODEPORT-NON-LOCAL .*--dport )(<[^>]+>|\d+)/, `$1<${name}>`);
}

/** Every rule of a Service port leads to the same local port, and no two Service ports share one. */
function assertOnePortEach(rules: readonly string[]): void {
  const pairs = new Set<string>();
  for (const rule of rules) {
    const port = /(?:--to-ports |--to-destination \S+:)(\d+)$/.exec(rule)?.[1];
    if (port !== undefined) pairs.add(`${/--comment "?([^" ]+)/.exec(rule)?.[1]} ${port}`);
  }
  const names = [...pairs].map((pair) => pair.split(' ')[0]);
  const numbers = [...pairs].map((pair) => pair.split(' ')[1]);
  assert.equal(new Set(names).size, pairs.size);
  assert.equal(new Set(numbers).size, pairs.size);
}
