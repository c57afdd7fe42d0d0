import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Portal } from '../../src/rules/portal.ts';
import { RuleSet } from '../../src/rules/rule-set.ts';
import { seededRandom } from '../support/seeded-random.ts';
import {
  address,
  ENDPOINT,
  IPV6_NODE,
  nodeFacts,
  owned,
  type PortalFields,
  portal,
  renderPortals,
  rulesOf,
} from './fixtures.ts';
import { type Packet, PacketTracer } from './packet-tracer.ts';

const NODE = '192.168.50.10';
const PODS = '10.244.0.0/16';

/** `ports` × `addresses` of one Service. */
function large(
  ports: number,
  fields: Omit<PortalFields, 'name'>,
  form: Pick<PortalFields, 'isLarge'> = { isLarge: true },
) {
  return Array.from({ length: ports }, (_, i) =>
    portal({ name: `shop/many:p${i}`, port: 1000 + i, localPort: 40_000 + i, ...fields, ...form }),
  );
}

const addresses = (count: number, network: string) =>
  Array.from({ length: count }, (_, i) => `${network}.${i >> 8}.${i % 256}`);

describe('the rules of a large Service', () => {
  test('are a sum of its ports, addresses and source ranges', () => {
    const externalIPs = addresses(1_000, '203.0');
    const loadBalancerSourceRanges = addresses(1_000, '100.64').map((network) => `${network}/32`);
    const portals = large(1_000, { externalIPs, loadBalancerIPs: ['198.51.100.7'], loadBalancerSourceRanges });
    const { rules } = renderPortals(portals, nodeFacts({ clusterCidrs: [PODS] }));
    assert.equal(owned(rules).length, 2 * (1_000 + 1_000 + 2) + 1_000 + (1_000 + 1) + 2 * 1_000);
    assert.ok(rules.length < 9_600, `${rules.length} with the jumps to buckets`);
  });

  test('send every packet where the rules by address and port send it', () => {
    const random = seededRandom(28);
    const pick = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)] as T;
    const balanced = ['198.51.100.7', NODE, '198.51.100.9'];
    const external = ['203.0.113.1', '203.0.113.2', '203.0.113.3'];
    const ranges = ['100.64.0.0/10', '100.64.7.0/24', '10.244.1.0/24', '192.168.50.0/24', '0.0.0.0/0'];
    const sources = ['100.64.7.1', '100.64.9.1', '10.244.1.20', '10.244.2.20', '192.168.50.1', '8.8.8.8'];
    for (let round = 0; round < 40; round++) {
      const some = <T>(values: readonly T[]) => values.filter(() => random() < 0.6);
      const sets = pick([
        {},
        { localSetPort: 41_000, local: { endpoints: [ENDPOINT], internal: false, external: true } },
        {
          localSetPort: 41_000,
          local: { endpoints: [], onlyElsewhere: true as const, internal: true, external: true },
        },
        { endpoints: [] },
      ]);
      const fields = {
        clusterIPs: ['10.96.0.1'],
        loadBalancerIPs: some(balanced),
        externalIPs: some(external),
        ...sets,
        ...(random() < 0.6 && { loadBalancerSourceRanges: some(ranges) }),
      };
      const node = nodeFacts(random() < 0.5 ? { clusterCidrs: [PODS] } : {});
      // Another Service, at another port of the same addresses.
      const neighbour = portal({ name: 'a/other', port: 80, localPort: 39_000, externalIPs: external });
      const rulesIn = (form: Pick<PortalFields, 'isLarge'>) =>
        new PacketTracer(renderPortals([...large(3, fields, form), neighbour], node).rules, [NODE]);
      const [wide, narrow] = [rulesIn({}), rulesIn({ isLarge: true })];
      for (let i = 0; i < 100; i++) {
        const from = pick(['pod', 'host', 'outside'] as const);
        const packet: Packet = {
          from,
          protocol: pick(['TCP', 'UDP'] as const),
          address: pick([...balanced, ...external, '10.96.0.1', '9.9.9.9']),
          port: pick([80, 1000, 1001, 1002, 1003]),
          source: from === 'host' ? pick([NODE, '198.51.100.7']) : pick(sources),
        };
        assert.deepEqual(narrow.nat(packet), wide.nat(packet), `round ${round}: ${JSON.stringify({ packet, fields })}`);
      }
    }
  });

  test('do not take what others have at an external IP, nor lose a load-balancer IP', () => {
    const many = Array.from({ length: 300 }, (_, i) =>
      portal({
        name: `z/svc-${i}`,
        port: 2000 + i,
        localPort: 50_000 + i,
        externalIPs: ['203.0.113.1', '198.51.100.7'],
      }),
    );
    for (const others of [many.slice(0, 2), many]) {
      const shared = large(2, { externalIPs: ['203.0.113.1'], loadBalancerIPs: ['198.51.100.7'] }).map((each, i) =>
        portal({
          name: each.servicePort.name,
          port: 2000 + i,
          localPort: each.localPort,
          externalIPs: ['203.0.113.1'],
          loadBalancerIPs: ['198.51.100.7'],
          isLarge: true,
        }),
      );
      const tracer = new PacketTracer(renderPortals([...shared, ...others], nodeFacts()).rules, [NODE]);
      const at = (to: string) => tracer.nat({ from: 'outside', protocol: 'TCP', address: to, port: 2000 });
      assert.deepEqual(at('203.0.113.1'), { address: NODE, port: 50_000 }, `among ${others.length}`);
      assert.deepEqual(at('198.51.100.7'), { address: NODE, port: 40_000 }, `among ${others.length}`);
    }
  });

  test('go with the last of its ports, and do not depend on the order of changes', () => {
    const node = nodeFacts();
    const before = large(5, { externalIPs: ['203.0.113.1', '203.0.113.2'] });
    const after = large(4, { externalIPs: ['203.0.113.2', '203.0.113.3'], loadBalancerIPs: ['198.51.100.7'] });
    const book = new RuleSet(node, before);
    const specs = (rules: RuleSet) => rulesOf(rules, node).map(({ chain, spec }) => `${chain} ${spec}`);
    const fresh = (portals: readonly Portal[]) => specs(new RuleSet(node, portals));
    book.remove('shop/many:p4');
    for (const each of after.toReversed()) book.set(each);
    assert.deepEqual(specs(book).sort(), fresh(after).sort());
    for (const each of large(4, { externalIPs: ['203.0.113.2'] }, {})) book.set(each);
    assert.deepEqual(specs(book).sort(), fresh(large(4, { externalIPs: ['203.0.113.2'] }, {})).sort(), 'small again');
    for (const each of after) book.set(each);
    for (const { servicePort } of after) book.remove(servicePort.name);
    assert.deepEqual(specs(book), fresh([]));
    assert.deepEqual(book.conflicts(), []);
  });

  test('have chains that iptables can name, in IPv6 too', () => {
    const externalIPs = Array.from({ length: 300 }, (_, i) => `2001:db8::${i.toString(16)}`);
    const { rules } = renderPortals(large(300, { externalIPs }), IPV6_NODE);
    for (const { chain } of rules) assert.ok(chain.length <= 28, chain);
    const tracer = new PacketTracer(rules, ['fd00:50::10']);
    const packet = { from: 'pod', protocol: 'TCP', address: '2001:db8::12b', port: 1299 } as const;
    assert.deepEqual(tracer.nat(packet), { address: address('fd00:50::10'), port: 40_299 });
    assert.ok(tracer.compared < 200, `${tracer.compared} rules compared`);
  });
});
