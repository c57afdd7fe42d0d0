import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Agent } from '../agent.ts';
import { Environment } from '../harness.ts';
import { FLAVOUR } from '../iptables.ts';
import type { Attempt, Outcome } from '../programs/outcomes.ts';
import { BRIDGE_ADDRESS, CLIENT_ADDRESS, NODE_ADDRESS, POD_ADDRESSES } from '../topology.ts';
import { PATIENCE_MS } from '../wait.ts';

/*
 * The packet-level facts that docs/adr/0010 builds on, with rules of the test's own and without the program. Every rule
 * stands here as iptables-save prints it.
 */

const LOCAL_PORT = 40_001;
const SERVED = 80;
const NO_ENDPOINTS = 81;
const RANGED = 82;
const NO_LOCAL_ENDPOINT = 83;
const VIP = '10.96.0.10';
const NODE_PORT = 30_080;
const NODE_PORT_NO_ENDPOINTS = 30_081;

const REFUSE = 1;
const DROP = 9;
const PROTOCOLS = ['tcp', 'udp'] as const;

function portal(port: number, target: number, source = ''): string[] {
  return PROTOCOLS.flatMap((protocol) => {
    const match = `${source}-d ${VIP}/32 -p ${protocol} -m ${protocol} --dport ${port}`;
    return [`-A KUBE-PORTALS-CONTAINER ${match} ${dnat(target)}`, `-A KUBE-PORTALS-HOST ${match} ${dnat(target)}`];
  });
}

function nodePort(port: number, target: number): string[] {
  return PROTOCOLS.flatMap((protocol) => {
    const match = `-p ${protocol} -m ${protocol} --dport ${port}`;
    return [`-A KUBE-NODEPORT-CONTAINER ${match} ${toPort(target)}`, `-A KUBE-NODEPORT-HOST ${match} ${dnat(target)}`];
  });
}

function localPort(port: number): string[] {
  return PROTOCOLS.map(
    (protocol) => `-A KUBE-LOCAL-PORTS -p ${protocol} -m ${protocol} --dport ${port} ${toPort(REFUSE)}`,
  );
}

const toPort = (target: number) => `-j DNAT --to-destination :${target}`;
const dnat = (target: number) => `-j DNAT --to-destination ${NODE_ADDRESS}:${target}`;

const NAT_JUMPS = [
  '-A PREROUTING -j KUBE-PORTALS-CONTAINER',
  '-A PREROUTING -m addrtype --dst-type LOCAL -j KUBE-NODEPORT-CONTAINER',
  '-A OUTPUT -j KUBE-PORTALS-HOST',
  '-A OUTPUT -m addrtype --dst-type LOCAL -j KUBE-NODEPORT-HOST',
];

const NAT_RULES = [
  ...portal(SERVED, LOCAL_PORT),
  ...portal(NO_ENDPOINTS, REFUSE),
  ...portal(RANGED, LOCAL_PORT, `-s ${CLIENT_ADDRESS}/32 `),
  ...portal(RANGED, DROP),
  ...portal(NO_LOCAL_ENDPOINT, DROP),
  ...nodePort(NODE_PORT, LOCAL_PORT),
  ...nodePort(NODE_PORT_NO_ENDPOINTS, REFUSE),
  '-A KUBE-NODEPORT-CONTAINER -j KUBE-LOCAL-PORTS',
  ...localPort(LOCAL_PORT),
];

const DOORS = [
  '-A KUBE-DOORS -p tcp -m tcp --dport 1 -m conntrack --ctstate DNAT -j ACCEPT',
  '-A KUBE-DOORS -p udp -m udp --dport 1 -m conntrack --ctstate DNAT -j REJECT --reject-with icmp-port-unreachable',
  '-A KUBE-DOORS -p tcp -m tcp --dport 9 -m conntrack --ctstate DNAT -j DROP',
  '-A KUBE-DOORS -p udp -m udp --dport 9 -m conntrack --ctstate DNAT -j DROP',
];

const FILTER_JUMPS = [
  '-A INPUT -m conntrack --ctstate NEW -j KUBE-DOORS',
  '-A INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL',
];

const FILTER_RULES = [
  ...DOORS,
  ...PROTOCOLS.map(
    (protocol) =>
      `-A KUBE-NODEPORT-NON-LOCAL -p ${protocol} -m ${protocol} --dport ${LOCAL_PORT} -m state --state NEW -j ACCEPT`,
  ),
];

const DEFAULT_DENY = ['-A INPUT -i lo -j ACCEPT', '-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT'];

function restoreText(policy: 'ACCEPT' | 'DROP'): string {
  return [
    '*nat',
    ...[...new Set(NAT_JUMPS.map((jump) => jump.split(' ').at(-1))), 'KUBE-LOCAL-PORTS'].map(
      (chain) => `:${chain} - [0:0]`,
    ),
    ...NAT_JUMPS,
    ...NAT_RULES,
    'COMMIT',
    '*filter',
    `:INPUT ${policy} [0:0]`,
    ':KUBE-DOORS - [0:0]',
    ':KUBE-NODEPORT-NON-LOCAL - [0:0]',
    ...FILTER_JUMPS,
    ...FILTER_RULES,
    ...(policy === 'DROP' ? DEFAULT_DENY : []),
    'COMMIT',
    '',
  ].join('\n');
}

for (const policy of ['ACCEPT', 'DROP'] as const) {
  describe(`refusing and dropping with iptables-${FLAVOUR} where the policy of INPUT is ${policy}`, () => {
    let environment: Environment;

    before(async () => {
      environment = await Environment.create();
      await environment.node.call('listenTcp', { port: LOCAL_PORT, mode: 'name', name: 'proxy' });
      // At one address, to answer from it.
      const udp = { port: LOCAL_PORT, mode: 'udp-name', name: 'proxy', host: NODE_ADDRESS } as const;
      await environment.node.call('listenUdp', udp);
      // Who is not held up at the node gets through to somebody.
      const [, , owner] = environment.topology.pods;
      await owner.ip(`addr add ${VIP}/32 dev lo`);
      await environment.topology.node.ip(`route add ${VIP}/32 via ${POD_ADDRESSES[2]} src ${NODE_ADDRESS}`);
      for (const port of [NO_ENDPOINTS, RANGED, NO_LOCAL_ENDPOINT]) {
        await environment.pods[2].serve(port, 'name');
        await environment.pods[2].serve(port, 'udp-name');
      }
      const program = `iptables-${FLAVOUR}-restore`;
      await environment.topology.node.output([program, '-w', '30', '--noflush'], { input: restoreText(policy) });
    });

    after(() => environment.remove());

    async function expect(agent: Agent, host: string, port: number, outcome: Outcome): Promise<void> {
      const attempts = PROTOCOLS.map((protocol): Attempt => ({ protocol, host, port }));
      const timeoutMs = outcome === 'timeout' ? 300 : PATIENCE_MS;
      const outcomes = await agent.call('outcomes', { attempts, timeoutMs });
      assert.deepEqual(outcomes, [outcome, outcome], `${agent.name} to ${host}:${port}`);
    }

    const everyone = () => [environment.client, environment.node, environment.outside];

    test('rules are printed as they are written', async () => {
      const saved = [...(await environment.iptables.save('nat')), ...(await environment.iptables.save('filter'))];
      for (const rule of [...NAT_JUMPS, ...NAT_RULES, ...FILTER_JUMPS, ...FILTER_RULES]) {
        assert.ok(saved.includes(rule), `${rule}\nis not among\n${saved.join('\n')}`);
      }
    });

    test('what has endpoints is carried: by address and NodePort, on loopback too', async () => {
      for (const agent of everyone()) {
        await expect(agent, VIP, SERVED, 'proxy');
        await expect(agent, NODE_ADDRESS, NODE_PORT, 'proxy');
      }
      // The datagram arrives too, but this stand-in for the proxy answers it from another address than it came to.
      const attempts = [{ protocol: 'tcp', host: '127.0.0.1', port: NODE_PORT }] as const;
      assert.deepEqual(await environment.node.call('outcomes', { attempts, timeoutMs: PATIENCE_MS }), ['proxy']);
    });

    test('what has none is refused at once, and leaves no UDP entry behind', async () => {
      for (const agent of everyone()) {
        await expect(agent, VIP, NO_ENDPOINTS, 'ECONNREFUSED');
        await expect(agent, NODE_ADDRESS, NODE_PORT_NO_ENDPOINTS, 'ECONNREFUSED');
      }
      await expect(environment.node, '127.0.0.1', NODE_PORT_NO_ENDPOINTS, 'ECONNREFUSED');
      const table = await environment.topology.node.output(['cat', '/proc/net/nf_conntrack']);
      const fromElsewhere = table.split('\n').filter((line) => !line.includes(` src=${NODE_ADDRESS} dst=`));
      assert.deepEqual(
        fromElsewhere.filter((line) => line.includes(' udp ') && line.includes(` dport=${NO_ENDPOINTS} `)),
        [],
      );
    });

    test('only the source range gets through', async () => {
      await expect(environment.client, VIP, RANGED, 'proxy');
      await expect(environment.pods[0], VIP, RANGED, 'timeout');
      await expect(environment.outside, VIP, RANGED, 'timeout');
      await expect(environment.node, VIP, RANGED, 'timeout');
    });

    test('what has no local endpoint is dropped', async () => {
      for (const agent of everyone()) await expect(agent, VIP, NO_LOCAL_ENDPOINT, 'timeout');
    });

    test('the local port itself is closed to all but the node', async () => {
      for (const [agent, address] of [
        [environment.client, BRIDGE_ADDRESS],
        [environment.client, NODE_ADDRESS],
        [environment.outside, NODE_ADDRESS],
      ] as const) {
        await expect(agent, address, LOCAL_PORT, 'ECONNREFUSED');
      }
      await expect(environment.node, NODE_ADDRESS, LOCAL_PORT, 'proxy');
    });
  });
}
