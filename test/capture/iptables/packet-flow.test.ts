import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { NodeFacts } from '../../../src/model/capture.ts';
import type { ProxiedProtocol } from '../../../src/model/service-port.ts';
import { address, ENDPOINT } from '../../support/model.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { IPV6_NODE, nodeFacts, portal, renderPortals } from '../fixtures.ts';
import { type Destination, type Packet, PacketTracer } from './packet-tracer.ts';

const NODE = '192.168.50.10';
/** The node's addresses; 192.168.50.77 is an external IP that it happens to have, 203.0.113.77 one that it has not. */
const LOCAL = [NODE, '10.244.1.1', '127.0.0.1', '192.168.50.77', 'fd00:50::10', '::1'];

const PORTALS = [
  portal({
    name: 'default/web:http',
    localPort: 40001,
    clusterIPs: ['10.96.0.100', 'fd00:96::100'],
    externalIPs: ['192.168.50.77', '203.0.113.77'],
    nodePort: 30080,
  }),
  portal({
    name: 'default/web:dns',
    protocol: 'UDP',
    port: 53,
    localPort: 40002,
    clusterIPs: ['10.96.0.100'],
    nodePort: 30053,
  }),
  portal({
    name: 'shop/balanced',
    port: 443,
    localPort: 40003,
    clusterIPs: ['10.96.0.102'],
    loadBalancerIPs: ['203.0.113.10'],
    nodePort: 30443,
  }),
  // Its external IP and port are the node's own address and another Service's NodePort.
  portal({ name: 'shop/overlap', port: 30443, localPort: 40004, clusterIPs: ['10.96.0.104'], externalIPs: [NODE] }),
];

/** The source, where it matters, is in a pair with where it is. */
type Row = readonly [from: Packet['from'] | readonly [Packet['from'], string], to: string, expected: Destination];

/** At the address that it came in for. */
const here = (port: number): Destination => ({ address: 'as asked', port });
const at = (host: string, port: number): Destination => ({ address: host, port });

flow('bound to every address', nodeFacts(), [
  ['pod', '10.96.0.100:80/TCP', at(NODE, 40001)],
  ['outside', '10.96.0.100:80/TCP', at(NODE, 40001)],
  ['host', '10.96.0.100:80/TCP', at(NODE, 40001)],
  ['pod', '10.96.0.100:53/UDP', at(NODE, 40002)],
  ['host', '10.96.0.100:53/UDP', at(NODE, 40002)],
  ['pod', '10.96.0.100:53/TCP', 'untouched'],
  ['pod', '10.96.0.100:80/UDP', 'untouched'],
  ['pod', '10.96.0.100:81/TCP', 'untouched'],
  ['host', '10.96.0.101:80/TCP', 'untouched'],

  ['pod', '203.0.113.10:443/TCP', at(NODE, 40003)],
  ['outside', '203.0.113.10:443/TCP', at(NODE, 40003)],
  ['host', '203.0.113.10:443/TCP', at(NODE, 40003)],

  // An external IP that is elsewhere is served here to everybody, as in kube-proxy's other modes.
  ['pod', '203.0.113.77:80/TCP', at(NODE, 40001)],
  ['outside', '203.0.113.77:80/TCP', at(NODE, 40001)],
  ['host', '203.0.113.77:80/TCP', at(NODE, 40001)],
  // One that this node has.
  ['pod', '192.168.50.77:80/TCP', at(NODE, 40001)],
  ['outside', '192.168.50.77:80/TCP', at(NODE, 40001)],
  ['host', '192.168.50.77:80/TCP', at(NODE, 40001)],

  ['pod', `${NODE}:30080/TCP`, here(40001)],
  ['outside', `${NODE}:30080/TCP`, here(40001)],
  ['host', `${NODE}:30080/TCP`, at(NODE, 40001)],
  ['host', '127.0.0.1:30080/TCP', at(NODE, 40001)],
  ['outside', `${NODE}:30053/UDP`, here(40002)],
  ['outside', `${NODE}:30080/UDP`, 'untouched'],
  ['pod', '10.244.1.11:30080/TCP', 'untouched'],
  ['pod', '8.8.8.8:30080/TCP', 'untouched'],

  // Portals come before NodePorts.
  ['outside', `${NODE}:30443/TCP`, at(NODE, 40004)],
  ['outside', '10.244.1.1:30443/TCP', here(40003)],

  // A proxy port is closed to all but the node, and nothing else of the node is touched.
  ['outside', `${NODE}:40001/TCP`, here(1)],
  ['pod', `10.244.1.1:40002/UDP`, here(1)],
  ['pod', `${NODE}:40002/TCP`, 'untouched'],
  ['host', `${NODE}:40001/TCP`, 'untouched'],
  ['outside', `${NODE}:22/TCP`, 'untouched'],
]);

flow("bound to one of the node's addresses", nodeFacts({ bindAddress: '10.244.1.1' }), [
  ['pod', '10.96.0.100:80/TCP', at('10.244.1.1', 40001)],
  ['outside', '203.0.113.77:80/TCP', at('10.244.1.1', 40001)],
  ['host', '10.96.0.100:80/TCP', at('10.244.1.1', 40001)],
  ['outside', `${NODE}:30080/TCP`, at('10.244.1.1', 40001)],
  ['host', '127.0.0.1:30080/TCP', at('10.244.1.1', 40001)],
  ['pod', '10.244.1.1:40001/TCP', at('10.244.1.1', 1)],
  // Another program may have this port there.
  ['outside', `${NODE}:40001/TCP`, 'untouched'],
]);

flow('NodePorts on some networks only', nodeFacts({ nodePortCidrs: ['192.168.50.10/32', '127.0.0.0/8', 'fd00::/8'] }), [
  ['outside', `${NODE}:30080/TCP`, here(40001)],
  ['host', `${NODE}:30080/TCP`, at(NODE, 40001)],
  ['host', '127.0.0.1:30080/TCP', at(NODE, 40001)],
  ['pod', '10.244.1.1:30080/TCP', 'untouched'],
  ['host', '10.244.1.1:30080/TCP', 'untouched'],
  ['pod', '10.96.0.100:80/TCP', at(NODE, 40001)],
]);

flow('NodePorts on networks of the other family', nodeFacts({ nodePortCidrs: ['fd00::/8'] }), [
  ['outside', `${NODE}:30080/TCP`, here(40001)],
  ['host', '127.0.0.1:30080/TCP', at(NODE, 40001)],
]);

flow('IPv6', IPV6_NODE, [
  ['pod', '[fd00:96::100]:80/TCP', at('fd00:50::10', 40001)],
  ['host', '[fd00:96::100]:80/TCP', at('fd00:50::10', 40001)],
  ['pod', '[fd00:96::101]:80/TCP', 'untouched'],
  ['outside', '[fd00:50::10]:30080/TCP', here(40001)],
  ['host', '[::1]:30080/TCP', at('fd00:50::10', 40001)],
]);

flow(
  'pods told by their interface',
  nodeFacts({
    pods: [{ inInterface: { name: 'cbr0', isPrefix: false } }],
    nodePortCidrs: ['192.168.50.10/32', '10.244.1.1/32'],
  }),
  [
    ['pod', `${NODE}:30002/TCP`, here(41_000)],
    ['pod', '203.0.113.2:80/TCP', at(NODE, 41_000)],
    ['outside', `${NODE}:30002/TCP`, here(41_001)],
    ['outside', '203.0.113.2:80/TCP', at(NODE, 41_001)],
    ['host', `${NODE}:30002/TCP`, at(NODE, 41_000)],
  ],
  [
    portal({
      name: 'a/external',
      loadBalancerIPs: ['203.0.113.2'],
      nodePort: 30_002,
      localPort: 41_000,
      localSetPort: 41_001,
      local: { endpoints: [ENDPOINT], internal: false, external: true },
    }),
  ],
);

const POD = ['pod', '10.244.3.7'] as const;
const REFUSED = 1;
const DROPPED = 9;

flow(
  'with Services that are not carried for everyone',
  nodeFacts({ clusterCidrs: ['10.244.0.0/16'] }),
  [
    ['pod', '10.96.0.1:80/TCP', at(NODE, REFUSED)],
    ['host', '10.96.0.1:80/TCP', at(NODE, REFUSED)],
    ['outside', `${NODE}:30001/TCP`, here(REFUSED)],
    ['host', '127.0.0.1:30001/TCP', at(NODE, REFUSED)],

    [POD, '10.96.0.2:80/TCP', at(NODE, 41_000)],
    ['host', '10.96.0.2:80/TCP', at(NODE, 41_000)],
    [POD, `${NODE}:30002/TCP`, here(41_000)],
    ['outside', `${NODE}:30002/TCP`, here(41_001)],
    ['host', `${NODE}:30002/TCP`, at(NODE, 41_000)],
    ['outside', '203.0.113.2:80/TCP', at(NODE, 41_001)],
    ['outside', '203.0.113.77:80/TCP', at(NODE, 41_001)],
    [['outside', '10.244.3.7'], '203.0.113.77:80/TCP', at(NODE, 41_000)],

    [POD, '10.96.0.3:80/TCP', at(NODE, 41_003)],
    ['host', '10.96.0.3:80/TCP', at(NODE, 41_003)],
    ['outside', `${NODE}:30003/TCP`, here(41_002)],

    ['outside', `${NODE}:30004/TCP`, here(DROPPED)],
    [POD, `${NODE}:30004/TCP`, here(41_004)],
    ['host', `${NODE}:30004/TCP`, at(NODE, 41_004)],

    [['outside', '192.0.2.9'], '203.0.113.5:80/TCP', at(NODE, 41_006)],
    [['outside', '192.0.3.9'], '203.0.113.5:80/TCP', at(NODE, DROPPED)],
    [['host', NODE], '203.0.113.5:80/TCP', at(NODE, DROPPED)],
    [['outside', '192.0.3.9'], `${NODE}:30005/TCP`, here(41_006)],
    [['outside', '192.0.3.9'], '10.96.0.5:80/TCP', at(NODE, 41_006)],

    ['outside', `${NODE}:41001/TCP`, here(REFUSED)],
    [POD, `${NODE}:41003/TCP`, here(REFUSED)],
  ],
  [
    portal({ name: 'a/empty', clusterIPs: ['10.96.0.1'], nodePort: 30_001, localPort: 40_999, endpoints: [] }),
    portal({
      name: 'a/external',
      clusterIPs: ['10.96.0.2'],
      loadBalancerIPs: ['203.0.113.2'],
      externalIPs: ['203.0.113.77'],
      nodePort: 30_002,
      localPort: 41_000,
      localSetPort: 41_001,
      local: { endpoints: [ENDPOINT], internal: false, external: true },
    }),
    portal({
      name: 'a/internal',
      clusterIPs: ['10.96.0.3'],
      nodePort: 30_003,
      localPort: 41_002,
      localSetPort: 41_003,
      local: { endpoints: [ENDPOINT], internal: true, external: false },
    }),
    portal({
      name: 'a/elsewhere',
      nodePort: 30_004,
      localPort: 41_004,
      localSetPort: 41_005,
      local: { endpoints: [], onlyElsewhere: true, internal: false, external: true },
    }),
    portal({
      name: 'a/ranged',
      clusterIPs: ['10.96.0.5'],
      loadBalancerIPs: ['203.0.113.5'],
      loadBalancerSourceRanges: ['192.0.2.0/24'],
      nodePort: 30_005,
      localPort: 41_006,
    }),
  ],
);

describe('a firewall that drops by default', () => {
  const checked = portal({ name: 'shop/checked', localPort: 40005, healthCheckNodePort: 32_000 });
  const rules = renderPortals([...PORTALS, checked], nodeFacts({ hostAddress: address(NODE) })).rules;
  const tracer = new PacketTracer(rules, LOCAL);
  const asked = (port: number, protocol: ProxiedProtocol) =>
    tracer.input({ from: 'outside', protocol, address: NODE, port }) === 'ACCEPT';
  const redirected = (port: number, protocol: ProxiedProtocol) =>
    tracer.input({ from: 'outside', protocol, address: NODE, port, isFromNat: true }) === 'ACCEPT';

  test('accepts what NAT has sent to a local port of any Service', () => {
    assert.equal(redirected(40001, 'TCP'), true);
    assert.equal(redirected(40002, 'UDP'), true);
    assert.equal(redirected(40004, 'TCP'), true, 'a Service without a NodePort');
  });

  test('accepts health checks', () => {
    assert.equal(asked(32_000, 'TCP'), true);
    assert.equal(asked(32_000, 'UDP'), false);
  });

  test('does not decide what NAT sends to be rejected or dropped', () => {
    const decided = (port: number, protocol: ProxiedProtocol, isFromNat?: true) =>
      tracer.input({ from: 'outside', protocol, address: NODE, port, ...(isFromNat && { isFromNat }) });
    assert.equal(decided(REFUSED, 'TCP', true), 'ACCEPT', 'for the stack to reset it');
    assert.equal(decided(REFUSED, 'UDP', true), 'REJECT --reject-with icmp-port-unreachable');
    assert.equal(decided(DROPPED, 'TCP', true), 'DROP');
    assert.equal(decided(DROPPED, 'UDP', true), 'DROP');
    for (const port of [REFUSED, DROPPED]) assert.equal(decided(port, 'UDP'), undefined, 'asked for by its number');
  });

  test('decides about other ports', () => {
    assert.equal(redirected(40002, 'TCP'), false);
    assert.equal(asked(40001, 'TCP'), false, 'a local port by its own number');
    assert.equal(redirected(30080, 'TCP'), false, 'the NodePort itself, which NAT has replaced by now');
    assert.equal(redirected(22, 'TCP'), false);
  });
});

describe('among 10,000 Services', () => {
  /** Of a cluster that hands out addresses at random; every other has a NodePort, every tenth an external IP. */
  const random = seededRandom(7);
  const addresses = new Set<string>();
  while (addresses.size < 10_000) addresses.add(`10.96.${Math.floor(random() * 256)}.${Math.floor(random() * 256)}`);
  const portals = [...addresses].map((clusterIP, i) =>
    portal({
      name: `ns/svc-${i}`,
      protocol: i % 5 === 0 ? 'UDP' : 'TCP',
      clusterIPs: [clusterIP],
      externalIPs: i % 10 === 0 ? [`203.0.${i >> 8}.${i & 255}`] : [],
      nodePort: i % 4 === 1 ? 30_000 + (i >> 2) : 0,
      localPort: 32_768 + i,
    }),
  );
  const tracer = new PacketTracer(renderPortals(portals, nodeFacts()).rules, LOCAL);
  /** "within 10 % of a connect", at 12 ns a rule. */
  const MOST = 200;

  test('each is reached from everywhere after few comparisons', () => {
    let most = 0;
    const look = (packet: Packet, expected: Destination) => {
      assert.deepEqual(tracer.nat(packet), expected);
      most = Math.max(most, tracer.compared);
    };
    for (const { servicePort, localPort } of portals.filter((_, i) => i < 20 || i % 97 === 0 || i > 9_980)) {
      const { protocol, port, nodePort } = servicePort;
      for (const ip of servicePort.clusterIPs) {
        look({ from: 'pod', protocol, address: ip, port }, at(NODE, localPort));
        look({ from: 'host', protocol, address: ip, port }, at(NODE, localPort));
      }
      for (const ip of servicePort.externalIPs)
        look({ from: 'outside', protocol, address: ip, port }, at(NODE, localPort));
      if (nodePort === 0) continue;
      look({ from: 'outside', protocol, address: NODE, port: nodePort }, at(NODE, localPort));
      const arrived: Packet = { from: 'outside', protocol, address: NODE, port: localPort, isFromNat: true };
      assert.equal(tracer.input(arrived), 'ACCEPT');
      most = Math.max(most, tracer.compared);
    }
    assert.ok(most <= MOST, `${most} comparisons`);
  });

  test('packets for no Service are untouched, after very few comparisons', () => {
    for (const [from, to, port] of [
      ['pod', '8.8.8.8', 443],
      ['host', '172.16.0.9', 80],
      ['outside', '10.244.1.7', 80],
    ] as const) {
      assert.equal(tracer.nat({ from, protocol: 'TCP', address: to, port }), 'untouched');
      assert.ok(tracer.compared <= 20, `${tracer.compared} comparisons`);
    }
    assert.equal(tracer.nat({ from: 'outside', protocol: 'TCP', address: NODE, port: 22 }), 'untouched');
    assert.ok(tracer.compared <= 30, `${tracer.compared} comparisons`);
    // A port that is free among those of UDP.
    assert.equal(tracer.nat({ from: 'outside', protocol: 'UDP', address: NODE, port: 40_001 }), 'untouched');
    assert.ok(tracer.compared <= 64, `${tracer.compared} comparisons`);
    assert.equal(tracer.input({ from: 'outside', protocol: 'TCP', address: NODE, port: 22 }), undefined);
    assert.ok(tracer.compared <= 20, `${tracer.compared} comparisons`);
  });
});

function flow(where: string, node: NodeFacts, rows: readonly Row[], portals = PORTALS): void {
  describe(`packets on a node: ${where}`, () => {
    const tracer = new PacketTracer(renderPortals(portals, node).rules, LOCAL);
    for (const [origin, to, expected] of rows) {
      const [from, source] = typeof origin === 'string' ? [origin] : origin;
      const verb = expected === 'untouched' ? 'is untouched' : `goes to ${expected.address}, port ${expected.port}`;
      test(`from ${from} ${source ?? ''} to ${to} ${verb}`, () => {
        const [, host = '', port, protocol] = /^(.*):(\d+)\/(\w+)$/.exec(to) ?? [];
        const packet: Packet = {
          ...(source !== undefined && { source }),
          from,
          protocol: protocol as ProxiedProtocol,
          address: host.replace(/[[\]]/g, ''),
          port: Number(port),
        };
        const isAsAsked = expected !== 'untouched' && expected.address === 'as asked';
        assert.deepEqual(tracer.nat(packet), isAsAsked ? { ...expected, address: packet.address } : expected);
      });
    }
  });
}
