import assert from 'node:assert/strict';
import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { adapted, DOORS, DOORS_JUMP, NEW_FROM_NAT } from '../../rules/golden.ts';
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
    test(`are those of kube-proxy 1.20's userspace mode, apart from what ADR 10 and 16 say, bound to ${bind}`, async () => {
      cpSync(join(GOLDEN, 'services.yaml'), join(environment.manifests.directory, 'services.yaml'));
      proxy = await environment.startProxy({ args: ['--bind-address', bind] });
      const golden = readFileSync(join(GOLDEN, `kube-proxy-userspace-bind-${bind}.rules`), 'utf8').split('\n');
      const installed = [...(await environment.iptables.save('nat')), ...(await environment.iptables.save('filter'))];
      const expected = comparable([...adapted(golden), ...added(bind)]);
      assert.deepEqual(comparable(installed), expected);
      assertOnePortEach(installed);
      // The form of its rules is kube-proxy's, too; but nobody would answer, so they lead to the door that refuses.
      const empty = installed.filter((line) => line.includes('"shop/empty" ') && line.includes(' -j DNAT '));
      assert.deepEqual(
        empty.map((line) => /\d+$/.exec(line)?.[0]),
        ['1', '1'],
      );
    });
  }
});

/** What this program writes and kube-proxy does not. */
function added(bind: string): readonly string[] {
  const at = bind === '0.0.0.0' ? '' : `-d ${bind}/32 `;
  const door = `DNAT --to-destination ${bind === '0.0.0.0' ? '' : bind}:1`;
  const ports = [
    'tcp default/web:http',
    'udp default/web:dns',
    'tcp shop/sticky',
    'tcp shop/balanced:https',
    'tcp shop/empty',
  ].flatMap((each) => {
    const [protocol, name] = each.split(' ');
    const match = (comment: string) => `-p ${protocol} -m comment --comment "${comment}" -m ${protocol} --dport 1`;
    return [
      `-A KUBE-LOCAL-PORTS ${at}${match(`${name} proxy port`)} -j ${door}`,
      `-A KUBE-NODEPORT-NON-LOCAL ${match(`${name}`)} -j ACCEPT`,
    ];
  });
  return [
    ...['PORTALS', 'NODEPORT'].map(
      (each) =>
        `-A KUBE-${each}-HOST -m comment --comment "connections of the proxy to endpoints" -m mark --mark 0x2000/0x2000 -j RETURN`,
    ),
    ':KUBE-LOCAL-PORTS - [0:0]',
    '-A KUBE-NODEPORT-CONTAINER -j KUBE-LOCAL-PORTS',
    ...ports,
    ...NEW_FROM_NAT.map((spec) => `-A KUBE-NODEPORT-NON-LOCAL ${spec}`),
    ':KUBE-DOORS - [0:0]',
    ':KUBE-LET-IN - [0:0]',
    `-A INPUT ${DOORS_JUMP}`,
    ...DOORS.map((spec) => `-A KUBE-DOORS ${spec}`),
  ];
}

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
  // Doors come first, and are told last here.
  const jumps = ours.filter(isJump).sort((a, b) => Number(a.includes('DOORS')) - Number(b.includes('DOORS')));
  return [...chains.sort(), ...jumps, ...rules.map(withoutPortNumbers).sort()];
}

function withoutPortNumbers(rule: string): string {
  const name = /--comment "?([^" ]+)/.exec(rule)?.[1] ?? '';
  return rule
    .replace(/(--to-destination \S*:)(<[^>]+>|\d+)$/, `$1<${name}>`)
    .replace(/^(-A KUBE-(?:NODEPORT-NON-LOCAL|LOCAL-PORTS) .*--dport )(<[^>]+>|\d+)/, `$1<${name}>`);
}

/** Every rule of a Service port leads to the same local port, and no two Service ports share one. */
function assertOnePortEach(rules: readonly string[]): void {
  const pairs = new Set<string>();
  for (const rule of rules) {
    const port = /--to-destination \S*:(\d+)$/.exec(rule)?.[1];
    if (port !== undefined && port !== '1') pairs.add(`${/--comment "?([^" ]+)/.exec(rule)?.[1]} ${port}`);
  }
  const names = [...pairs].map((pair) => pair.split(' ')[0]);
  const numbers = [...pairs].map((pair) => pair.split(' ')[1]);
  assert.equal(new Set(names).size, pairs.size);
  assert.equal(new Set(numbers).size, pairs.size);
}
