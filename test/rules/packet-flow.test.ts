import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ProxiedProtocol } from '../../src/model/service-port.ts';
import { renderPortals } from '../../src/rules/render.ts';
import type { NodeFacts } from '../../src/rules/steering.ts';
import { address, IPV6_NODE, nodeFacts, portal } from './fixtures.ts';
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

type Row = readonly [from: Packet['from'], to: string, expected: Destination];

const here = (port: number): Destination => ({ address: 'this node', port });
const at = (host: string, port: number): Destination => ({ address: host, port });

flow('bound to every address', nodeFacts(), [
  ['pod', '10.96.0.100:80/TCP', here(40001)],
  ['outside', '10.96.0.100:80/TCP', here(40001)],
  ['host', '10.96.0.100:80/TCP', at(NODE, 40001)],
  ['pod', '10.96.0.100:53/UDP', here(40002)],
  ['host', '10.96.0.100:53/UDP', at(NODE, 40002)],
  ['pod', '10.96.0.100:53/TCP', 'untouched'],
  ['pod', '10.96.0.100:80/UDP', 'untouched'],
  ['pod', '10.96.0.100:81/TCP', 'untouched'],
  ['host', '10.96.0.101:80/TCP', 'untouched'],

  ['pod', '203.0.113.10:443/TCP', here(40003)],
  ['outside', '203.0.113.10:443/TCP', here(40003)],
  ['host', '203.0.113.10:443/TCP', at(NODE, 40003)],

  // An external IP that is elsewhere: only who must pass through here is served here.
  ['pod', '203.0.113.77:80/TCP', 'untouched'],
  ['outside', '203.0.113.77:80/TCP', here(40001)],
  ['host', '203.0.113.77:80/TCP', 'untouched'],
  // One that this node has.
  ['pod', '192.168.50.77:80/TCP', here(40001)],
  ['outside', '192.168.50.77:80/TCP', here(40001)],
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
  ['outside', `${NODE}:30443/TCP`, here(40004)],
  ['outside', '10.244.1.1:30443/TCP', here(40003)],

  // Neither a proxy port nor anything else of the node is touched.
  ['outside', `${NODE}:40001/TCP`, 'untouched'],
  ['outside', `${NODE}:22/TCP`, 'untouched'],
]);

flow("bound to one of the node's addresses", nodeFacts({ bindAddress: '10.244.1.1' }), [
  ['pod', '10.96.0.100:80/TCP', at('10.244.1.1', 40001)],
  ['outside', '203.0.113.77:80/TCP', at('10.244.1.1', 40001)],
  ['host', '10.96.0.100:80/TCP', at('10.244.1.1', 40001)],
  ['outside', `${NODE}:30080/TCP`, at('10.244.1.1', 40001)],
  ['host', '127.0.0.1:30080/TCP', at('10.244.1.1', 40001)],
]);

flow('NodePorts on some networks only', nodeFacts({ nodePortCidrs: ['192.168.50.10/32', '127.0.0.0/8', 'fd00::/8'] }), [
  ['outside', `${NODE}:30080/TCP`, here(40001)],
  ['host', `${NODE}:30080/TCP`, at(NODE, 40001)],
  ['host', '127.0.0.1:30080/TCP', at(NODE, 40001)],
  ['pod', '10.244.1.1:30080/TCP', 'untouched'],
  ['host', '10.244.1.1:30080/TCP', 'untouched'],
  ['pod', '10.96.0.100:80/TCP', here(40001)],
]);

flow('NodePorts on networks of the other family', nodeFacts({ nodePortCidrs: ['fd00::/8'] }), [
  ['outside', `${NODE}:30080/TCP`, 'untouched'],
  ['host', '127.0.0.1:30080/TCP', 'untouched'],
]);

flow('IPv6', IPV6_NODE, [
  ['pod', '[fd00:96::100]:80/TCP', here(40001)],
  ['host', '[fd00:96::100]:80/TCP', at('fd00:50::10', 40001)],
  ['pod', '[fd00:96::101]:80/TCP', 'untouched'],
  ['outside', '[fd00:50::10]:30080/TCP', here(40001)],
  ['host', '[::1]:30080/TCP', at('fd00:50::10', 40001)],
]);

describe('a firewall that drops what it does not know', () => {
  const rules = renderPortals(PORTALS, nodeFacts({ hostAddress: address(NODE) })).rules;
  const tracer = new PacketTracer(rules, LOCAL);
  const redirected = (port: number, protocol: ProxiedProtocol) =>
    tracer.acceptsInput({ from: 'outside', protocol, address: NODE, port });

  test('is told to let in what a NodePort has redirected', () => {
    assert.equal(redirected(40001, 'TCP'), true);
    assert.equal(redirected(40002, 'UDP'), true);
  });

  test('is told nothing of other ports', () => {
    assert.equal(redirected(40002, 'TCP'), false);
    assert.equal(redirected(40004, 'TCP'), false, 'a Service without a NodePort');
    assert.equal(redirected(30080, 'TCP'), false, 'the NodePort itself, which NAT has replaced by now');
    assert.equal(redirected(22, 'TCP'), false);
  });
});

function flow(where: string, node: NodeFacts, rows: readonly Row[]): void {
  describe(`packets on a node: ${where}`, () => {
    const tracer = new PacketTracer(renderPortals(PORTALS, node).rules, LOCAL);
    for (const [from, to, expected] of rows) {
      const verb = expected === 'untouched' ? 'goes its own way' : `goes to ${expected.address}, port ${expected.port}`;
      test(`from ${from} to ${to} ${verb}`, () => {
        const [, host = '', port, protocol] = /^(.*):(\d+)\/(\w+)$/.exec(to) ?? [];
        const packet: Packet = {
          from,
          protocol: protocol as ProxiedProtocol,
          address: host.replace(/[[\]]/g, ''),
          port: Number(port),
        };
        assert.deepEqual(tracer.nat(packet), expected);
      });
    }
  });
}
