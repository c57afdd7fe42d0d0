import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { NodeFacts, Portal } from '../../../src/model/capture.ts';
import type { ServicePort } from '../../../src/model/service-port.ts';
import { nodeFacts, type PortalFields, planText, portal, renderPortals } from '../../capture/fixtures.ts';
import { address, ENDPOINT } from '../../support/model.ts';
import type { Agent } from '../agent.ts';
import { type Environment, testEnvironment } from '../harness.ts';
import { CAPTURE, FLAVOUR } from '../iptables.ts';
import { addIpv6, IPV6 as SECOND } from '../ipv6.ts';
import type { Attempt, Outcome } from '../programs/outcomes.ts';
import { BRIDGE_ADDRESS, CLIENT_ADDRESS, NODE_ADDRESS } from '../topology.ts';
import { PATIENCE_MS } from '../wait.ts';

/*
 * The rules of Service ports on packets, with a server on each local port that says whose it is. Both protocols lead to
 * the same numbers.
 */

const HERE = [ENDPOINT];
const ELSEWHERE = { endpoints: [], onlyElsewhere: true } as const;
const EXTERNAL = { internal: false, external: true } as const;

/** One Service on each address with the last part `n`, NodePort 30,000 + n, local ports 40,000 + n and 41,000 + n. */
function service(n: number, name: string, fields: Partial<PortalFields>, at: Addresses): readonly Portal[] {
  return (['TCP', 'UDP'] as const satisfies readonly ServicePort['protocol'][]).map((protocol) =>
    portal({
      name: `test/${name}:${protocol.toLowerCase()}`,
      protocol,
      clusterIPs: [at.clusterIP(n)],
      loadBalancerIPs: [at.loadBalancerIP(n)],
      nodePort: 30_000 + n,
      localPort: 40_000 + n,
      ...(fields.local && { localSetPort: 41_000 + n }),
      ...fields,
    }),
  );
}

interface Addresses {
  readonly family: 'IPv4' | 'IPv6';
  readonly node: string;
  readonly bridge: string;
  readonly client: string;
  readonly pods: string;
  readonly loopback: string;
  clusterIP(n: number): string;
  loadBalancerIP(n: number): string;
}

const IPV4: Addresses = {
  family: 'IPv4',
  node: NODE_ADDRESS,
  bridge: BRIDGE_ADDRESS,
  client: CLIENT_ADDRESS,
  pods: '10.244.0.0/16',
  loopback: '127.0.0.1',
  clusterIP: (n) => `10.96.0.${n}`,
  loadBalancerIP: (n) => `203.0.113.${n}`,
};

const IPV6: Addresses = {
  family: 'IPv6',
  node: SECOND.node,
  bridge: SECOND.bridge,
  client: SECOND.client,
  pods: SECOND.podRange,
  loopback: '::1',
  clusterIP: (n) => `fd00:96::${n.toString(16)}`,
  loadBalancerIP: (n) => `2001:db8::${n.toString(16)}`,
};

function portalsAt(at: Addresses): readonly Portal[] {
  const bits = at.family === 'IPv4' ? 32 : 128;
  return [
    ...service(10, 'served', {}, at),
    ...service(11, 'empty', { endpoints: [] }, at),
    ...service(12, 'external', { local: { endpoints: HERE, ...EXTERNAL } }, at),
    ...service(13, 'elsewhere', { local: { ...ELSEWHERE, ...EXTERNAL } }, at),
    ...service(14, 'internal', { local: { endpoints: HERE, internal: true, external: false } }, at),
    ...service(15, 'inside', { local: { ...ELSEWHERE, internal: true, external: false } }, at),
    ...service(16, 'ranged', { loadBalancerSourceRanges: [`${at.client}/${bits}`] }, at),
    ...service(17, 'node-ranged', { loadBalancerSourceRanges: [`${at.node}/${bits}`] }, at),
    ...service(18, 'nobody', { loadBalancerSourceRanges: [] }, at),
  ];
}

/** All that rules name: ports of refusals, NodePorts and local ports, and some around them. */
const NAMED_PORTS = [
  [1, 1_024],
  [29_900, 31_400],
  [39_900, 42_400],
] as const;

const PORTALS = { IPv4: portalsAt(IPV4), IPv6: portalsAt(IPV6) };

/** So many other Services that all chains are divided into buckets (docs/adr/0006). */
function others(at: Addresses): readonly Portal[] {
  return Array.from({ length: 300 }, (_, n) =>
    portal({
      name: `others/service-${n}`,
      clusterIPs: [at.family === 'IPv4' ? `10.97.${n >> 8}.${n & 255}` : `fd00:97::${n.toString(16)}`],
      nodePort: 31_000 + n,
      localPort: 42_000 + n,
    }),
  );
}

const BY = CAPTURE === 'nft' ? 'an nft table' : `iptables-${FLAVOUR}`;

/** Captures for these portals on the node of the environment. */
const INSTALL = {
  async iptables({ topology }: Environment, portals: readonly Portal[], node: NodeFacts): Promise<void> {
    const { rules } = renderPortals(portals, node);
    const program = `${node.family === 'IPv4' ? 'iptables' : 'ip6tables'}-${FLAVOUR}-restore`;
    for (const table of ['nat', 'filter'] as const) {
      const input = planText(table, '', rules) ?? '';
      if (table === 'nat') assert.equal(input.includes('KUBE-USP-PB-'), portals.length > 100);
      await topology.node.output([program, '-w', '30', '--noflush'], { input });
    }
  },
  async nft({ topology }: Environment, portals: readonly Portal[], node: NodeFacts): Promise<void> {
    const input = JSON.stringify({ portals, node, connectionMark: 0x2000 });
    const program = fileURLToPath(new URL('../programs/nft-table.ts', import.meta.url));
    await topology.node.output([process.execPath, program], { input });
  },
};

for (const at of [IPV4, IPV6]) {
  for (const [bindAddress, more] of [
    [at.family === 'IPv4' ? '0.0.0.0' : '::', others(at)],
    [at.node, []],
  ] as const) {
    const amount = more.length > 0 ? ' in buckets' : '';
    describe(`${at.family} packets meet the rules of ${BY}${amount}, bound to ${bindAddress}`, () => {
      const environment = testEnvironment();
      let install: () => Promise<void>;

      before(async () => {
        await addIpv6(environment);
        for (const { servicePort, localPort, localSetPort } of PORTALS[at.family]) {
          const name = /\/([^:]+)/.exec(servicePort.name)?.[1] ?? '';
          const listen = async (port: number, says: string) => {
            if (servicePort.protocol === 'TCP') {
              await environment.node.call('listenTcp', { port, mode: 'name', name: says, host: bindAddress });
              return;
            }
            // One socket for each address, to answer from the one that was asked, as the proxy does.
            for (const host of bindAddress === at.node ? [at.node] : [at.node, at.bridge]) {
              await environment.node.call('listenUdp', { port, mode: 'udp-name', name: says, host });
            }
          };
          await listen(localPort, name);
          if (localSetPort !== undefined) await listen(localSetPort, `${name}-local`);
        }
        const node = { ...nodeFacts({ clusterCidrs: [at.pods], bindAddress }), family: at.family };
        const portals = [...PORTALS[at.family], ...more];
        install = () => INSTALL[CAPTURE](environment, portals, { ...node, hostAddress: address(at.node) });
        await install();
      });

      type From = 'client' | 'pod' | 'node' | 'outside';
      const agent = (from: From): Agent => (from === 'pod' ? environment.pods[0] : environment[from]);

      /** All rows at once; the outcome is the same over TCP and UDP. */
      async function expect(rows: readonly (readonly [From, host: string, port: number, Outcome])[]): Promise<void> {
        const outcomes = await Promise.all(
          rows.map(([from, host, port, outcome]) => {
            const attempts = (['tcp', 'udp'] as const).map((protocol): Attempt => ({ protocol, host, port }));
            return agent(from).call('outcomes', { attempts, timeoutMs: outcome === 'timeout' ? 1_000 : PATIENCE_MS });
          }),
        );
        assert.deepEqual(
          rows.map(([from, host, port], i) => [from, host, port, ...(outcomes[i] ?? [])]),
          rows.map(([from, host, port, outcome]) => [from, host, port, outcome, outcome]),
        );
      }

      test('of Services with endpoints: carried', () =>
        expect([
          ['client', at.clusterIP(10), 80, 'served'],
          ['node', at.clusterIP(10), 80, 'served'],
          ['outside', at.clusterIP(10), 80, 'served'],
          ['outside', at.loadBalancerIP(10), 80, 'served'],
          ['client', at.bridge, 30_010, 'served'],
          ['node', at.node, 30_010, 'served'],
          ['outside', at.node, 30_010, 'served'],
        ]));

      test('to a NodePort on loopback: carried', async () => {
        const attempts = [{ protocol: 'tcp', host: at.loopback, port: 30_010 }] as const;
        assert.deepEqual(await environment.node.call('outcomes', { attempts, timeoutMs: PATIENCE_MS }), ['served']);
      });

      test('of Services without endpoints: refused at once, and no UDP entry remains', async () => {
        await expect(
          (['client', 'node', 'outside'] as const).flatMap((from) => [
            [from, at.clusterIP(11), 80, 'ECONNREFUSED'] as const,
            [from, at.loadBalancerIP(11), 80, 'ECONNREFUSED'] as const,
            [from, at.node, 30_011, 'ECONNREFUSED'] as const,
          ]),
        );
        const table = await environment.topology.node.output(['cat', '/proc/net/nf_conntrack']);
        const fromElsewhere = table
          .split('\n')
          .filter((line) => line.includes(' udp ') && !line.includes(' src=127.0.0.1'));
        assert.deepEqual(
          fromElsewhere.filter((line) => line.includes(` src=${at.client} `) && line.includes(' dport=30011 ')),
          [],
        );
      });

      test('under an external policy Local: from outside to the local set, from inside to the own one', () =>
        expect([
          ['outside', at.node, 30_012, 'external-local'],
          ['outside', at.loadBalancerIP(12), 80, 'external-local'],
          ['client', at.node, 30_012, 'external'],
          ['client', at.loadBalancerIP(12), 80, 'external'],
          ['node', at.node, 30_012, 'external'],
          ['node', at.loadBalancerIP(12), 80, 'external'],
          ['client', at.clusterIP(12), 80, 'external'],
          ['node', at.clusterIP(12), 80, 'external'],
        ]));

      test('under an external policy Local without a local endpoint: from outside dropped', () =>
        expect([
          ['outside', at.node, 30_013, 'timeout'],
          ['outside', at.loadBalancerIP(13), 80, 'timeout'],
          ['client', at.node, 30_013, 'elsewhere'],
          ['node', at.loadBalancerIP(13), 80, 'elsewhere'],
          ['client', at.clusterIP(13), 80, 'elsewhere'],
        ]));

      test('under an internal policy Local: cluster IPs to the local set, all else to the own one', () =>
        expect([
          ['client', at.clusterIP(14), 80, 'internal-local'],
          ['node', at.clusterIP(14), 80, 'internal-local'],
          ['outside', at.node, 30_014, 'internal'],
          ['client', at.clusterIP(15), 80, 'timeout'],
          ['node', at.clusterIP(15), 80, 'timeout'],
          ['outside', at.node, 30_015, 'inside'],
        ]));

      test('with source ranges: to load balancer IPs from there alone', () =>
        expect([
          ['client', at.loadBalancerIP(16), 80, 'ranged'],
          ['pod', at.loadBalancerIP(16), 80, 'timeout'],
          ['outside', at.loadBalancerIP(16), 80, 'timeout'],
          ['node', at.loadBalancerIP(16), 80, 'timeout'],
          ['outside', at.node, 30_016, 'ranged'],
          ['pod', at.clusterIP(16), 80, 'ranged'],
          ['node', at.loadBalancerIP(17), 80, 'node-ranged'],
          ['client', at.loadBalancerIP(17), 80, 'timeout'],
          ['client', at.loadBalancerIP(18), 80, 'timeout'],
          ['node', at.loadBalancerIP(18), 80, 'timeout'],
        ]));

      test('with source ranges that hold the node, which has the load balancer IP itself', async () => {
        const { node } = environment.topology;
        await node.ip(`addr add ${at.loadBalancerIP(17)}/${at.family === 'IPv4' ? '32 dev lo' : '128 dev lo nodad'}`);
        // Over TCP: a UDP server that does not know which address it was asked at answers from another one.
        const attempts = [{ protocol: 'tcp', host: at.loadBalancerIP(17), port: 80 }] as const;
        assert.deepEqual(await environment.node.call('outcomes', { attempts, timeoutMs: PATIENCE_MS }), [
          'node-ranged',
        ]);
      });

      test('to a local port: answered only to the node itself', () =>
        expect([
          ['outside', at.node, 40_010, 'ECONNREFUSED'],
          ['outside', at.node, 41_012, 'ECONNREFUSED'],
          ['client', at.bridge, 40_010, 'ECONNREFUSED'],
          ['node', at.node, 40_010, 'served'],
        ]));

      // Takes long. The rules are the same in both flavours, and the tests above meet them in both. Between these
      // ranges no rule names a port, so one of the four looks there.
      const [ports, which] =
        bindAddress === '0.0.0.0'
          ? [[[1, 65_535]] as const, "of the node's 65,535 ports"]
          : [NAMED_PORTS, 'port of the rules'];
      for (const protocol of FLAVOUR === 'nft' ? (['tcp', 'udp'] as const) : []) {
        test(`to any ${which} over ${protocol}: only NodePorts answer`, async () => {
          const scan = (from: From, host: string) =>
            agent(from).call('answeringPorts', { host, ports, protocol, timeoutMs: 5_000 });
          const toPods = [10, 12, 13, 14, 15, 16, 17, 18].map((n) => 30_000 + n);
          const [fromOutside, fromPod] = await Promise.all([
            scan('outside', at.node),
            bindAddress === at.node ? toPods : scan('client', at.bridge),
          ]);
          assert.deepEqual([fromOutside, fromPod], [toPods.filter((port) => port !== 30_013), toPods]);
        });
      }

      test('the same past a firewall that drops by default', async () => {
        const firewall = [
          '*filter',
          ':INPUT DROP [0:0]',
          '-A INPUT -i lo -j ACCEPT',
          '-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
          ...(at.family === 'IPv6' ? ['-A INPUT -p ipv6-icmp -j ACCEPT'] : []),
          'COMMIT\n',
        ].join('\n');
        const program = `${at.family === 'IPv4' ? 'iptables' : 'ip6tables'}-${FLAVOUR}-restore`;
        await environment.topology.node.output([program, '-w', '30', '--noflush'], { input: firewall });
        // As the next look at the rules would.
        if (CAPTURE === 'nft') await install();
        await expect([
          ['client', at.clusterIP(10), 80, 'served'],
          ['node', at.clusterIP(10), 80, 'served'],
          ['outside', at.node, 30_010, 'served'],
          ['client', at.clusterIP(11), 80, 'ECONNREFUSED'],
          ['outside', at.node, 30_011, 'ECONNREFUSED'],
          ['outside', at.node, 40_010, 'ECONNREFUSED'],
          ['outside', at.node, 22, 'timeout'],
        ]);
      });
    });
  }
}
