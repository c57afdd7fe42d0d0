import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Address } from '../../src/model/address.ts';
import type { Service, ServiceKey, ServicePortSpec } from '../../src/model/service.ts';
import { destinations, type ServicePort } from '../../src/model/service-port.ts';
import { MAX_RULES } from '../../src/services/service-limits.ts';
import { ServiceTracker, type ServiceTrackerOptions } from '../../src/services/service-tracker.ts';
import { foundText } from '../../src/util/found.ts';
import { service as anyService, endpointAddress, address as ip } from '../support/model.ts';

/** What one Service may ask for, and cost the others. */

const ports = (count: number, protocol: ServicePortSpec['protocol'] = 'TCP', prefix = 'p'): ServicePortSpec[] =>
  Array.from({ length: count }, (_, i) => ({ name: `${prefix}${i}`, protocol, port: 1 + i, nodePort: 0 }));

const addresses = (count: number, network = '198.51') =>
  Array.from({ length: count }, (_, i) => ip(`${network}.${i >> 8}.${i % 256}`));

function tracker(options: ServiceTrackerOptions = {}) {
  const it = new ServiceTracker('IPv4', options);
  const put = (fields: Partial<Service>) => {
    const value = anyService(fields);
    it.apply([{ kind: 'Service', key: value.key, value }]);
  };
  const endpointAt = (address: string, port: number, key: ServiceKey = 'shop/db') => {
    const group = { addresses: [endpointAddress(address)], ports: [{ name: '', protocol: 'TCP' as const, port }] };
    it.apply([{ kind: 'EndpointSlice', key, value: { key, service: key, group } }]);
  };
  return { it, put, endpointAt };
}

describe('a Service with many ports and addresses', () => {
  const rangesOf = (networks: readonly Address[]) => networks.map((network) => ({ network, prefixLength: 32 }));
  /** The rules of these ports: one for each address, and at load-balancer IPs for each source range as well. */
  const rulesOf = (all: readonly ServicePort[]) =>
    all.flatMap(destinations).reduce((sum, { sourceRanges = [] }) => sum + 1 + sourceRanges.length, 0);

  test('gets so many rules and no more; it is told once, with an event', () => {
    const { it, put } = tracker();
    const fields = {
      uid: 'a-b-c',
      ports: ports(8),
      externalIPs: addresses(300),
      loadBalancerIPs: addresses(3, '203.0'),
      loadBalancerSourceRanges: rangesOf(addresses(100)),
    };
    put(fields);
    const { upserted, refused, unserved } = it.takeDelta();
    const [first] = upserted;
    assert.deepEqual(
      [first?.clusterIPs.length, first?.loadBalancerIPs, first?.externalIPs.length],
      [1, addresses(2, '203.0'), MAX_RULES / 8 - 1 - 2 * 101],
    );
    assert.equal(rulesOf(upserted), MAX_RULES);
    assert.deepEqual(refused, [
      {
        name: 'shop/web',
        what: '1 of its 3 IPv4 load-balancer IPs',
        found: 'a Service gets at most 2048 rules, its ports times addresses',
        advice: 'use several Services',
        uid: 'a-b-c',
      },
      {
        name: 'shop/web',
        what: '247 of its 300 IPv4 external IPs',
        found: 'a Service gets at most 2048 rules, its ports times addresses',
        advice: 'use several Services',
        uid: 'a-b-c',
      },
    ]);
    assert.deepEqual(unserved, []);
    put({ ...fields, affinity: { type: 'ClientIP', timeoutSeconds: 9 } });
    const again = it.takeDelta();
    assert.deepEqual([again.upserted.length, again.refused, again.unserved], [8, [], []]);
  });

  test('keeps its first ports and their cluster IPs before all other addresses', () => {
    const { it, put } = tracker();
    const others = { externalIPs: addresses(2), loadBalancerIPs: addresses(1, '203.0') };
    put({ uid: 'a-b-c', ports: ports(MAX_RULES + 3), ...others });
    const { upserted, refused, unserved } = it.takeDelta();
    assert.deepEqual([upserted.length, rulesOf(upserted)], [MAX_RULES, MAX_RULES]);
    assert.deepEqual(
      refused.map(({ what }) => what),
      ['1 of its 1 IPv4 load-balancer IPs', '2 of its 2 IPv4 external IPs'],
    );
    const why = { found: 'a Service gets at most 2048 ports', advice: 'use several Services' };
    assert.deepEqual(unserved, [{ name: 'shop/web:p2048', more: 2, ...why, uid: 'a-b-c' }]);
  });

  test('accepts the first of its source ranges, so fewer clients and never more', () => {
    const { it, put } = tracker();
    const ranges = rangesOf(addresses(MAX_RULES));
    put({ loadBalancerIPs: addresses(1, '203.0'), loadBalancerSourceRanges: ranges });
    const { upserted, refused } = it.takeDelta();
    assert.deepEqual(upserted[0]?.loadBalancerSourceRanges, ranges.slice(0, MAX_RULES - 2));
    assert.equal(rulesOf(upserted), MAX_RULES);
    assert.deepEqual(
      refused.map(({ what }) => what),
      [`2 of its ${MAX_RULES} IPv4 load balancer source ranges`],
    );
  });

  test('gets as much in each address family, and is told of each what is beyond', () => {
    const six = (count: number) => Array.from({ length: count }, (_, i) => ip(`2001:db8::${i.toString(16)}`));
    const both = { ports: ports(1_024), clusterIPs: [ip('10.96.0.1'), ip('fd00::1')] };
    for (const [family, count] of [
      ['IPv4', 1],
      ['IPv6', 3],
    ] as const) {
      const it = new ServiceTracker(family, { servedFamilies: () => ['IPv4', 'IPv6'] });
      const value = anyService({ ...both, externalIPs: [...addresses(1), ...six(3)] });
      it.apply([{ kind: 'Service', key: value.key, value }]);
      const { upserted, refused } = it.takeDelta();
      assert.equal(rulesOf(upserted), MAX_RULES);
      assert.deepEqual(
        refused.map(({ what }) => what),
        count === 1 ? [] : ['2 of its 3 IPv6 external IPs'],
      );
    }
  });
});

test('the endpoints at an external IP are read once for all ports of a Service', () => {
  const { it, put } = tracker();
  let reads = 0;
  const group = {
    addresses: [endpointAddress('198.51.0.7')],
    get ports() {
      reads++;
      return [{ name: '', protocol: 'TCP' as const, port: 44 }];
    },
  };
  it.apply([{ kind: 'EndpointSlice', key: 'shop/db', value: { key: 'shop/db', service: 'shop/db', group } }]);
  reads = 0;
  put({ ports: ports(500), externalIPs: [ip('198.51.0.7')] });
  assert.deepEqual(it.takeDelta().refused.filter(({ found }) => found === 'it is an endpoint of a Service').length, 1);
  assert.equal(reads, 1);
});

test('five thousand SCTP ports are one report', () => {
  const { it, put } = tracker();
  put({ ports: ports(5_000, 'SCTP') });
  const { unserved } = it.takeDelta();
  assert.deepEqual(
    unserved.map((port) => [port.name, port.more, foundText(port)]),
    [
      ['shop/web:p2048', 2_951, 'a Service gets at most 2048 ports; use several Services'],
      ['shop/web:p0', 2_047, 'SCTP is not supported in user space'],
    ],
  );
});

describe('Services that share an external IP', () => {
  const SHARED = ip('203.0.113.7');
  const sharing = (i: number): Partial<Service> => ({
    key: `ns/svc-${i}`,
    clusterIPs: [ip(`10.96.${i >> 8}.${i % 256}`)],
    externalIPs: [SHARED],
    ports: [{ name: '', protocol: 'TCP', port: 1 + i, nodePort: 0 }],
  });

  test('are not looked at when one of them changes', () => {
    const { it, put } = tracker();
    for (let i = 0; i < 500; i++) put(sharing(i));
    it.takeDelta();
    put({ ...sharing(7), affinity: { type: 'ClientIP', timeoutSeconds: 9 } });
    assert.equal(it.pendingServices, 1);
    it.takeDelta();
    it.apply([{ kind: 'Service', key: 'ns/svc-7', value: undefined }]);
    assert.equal(it.pendingServices, 1);
  });

  test('are all looked at when it becomes an endpoint or a cluster IP', () => {
    const { it, put, endpointAt } = tracker();
    for (let i = 0; i < 500; i++) put(sharing(i));
    it.takeDelta();
    endpointAt(SHARED, 8);
    assert.equal(it.pendingServices, 501);
    const reasons = Map.groupBy(it.takeDelta().refused, ({ found }) => found);
    assert.deepEqual([...reasons].map(([reason, { length }]) => [/^it is an endpoint/.test(reason), length]).sort(), [
      [false, 499],
      [true, 1],
    ]);
    put({ key: 'shop/taken', clusterIPs: [SHARED] });
    assert.equal(it.takeDelta().refused.length, 500);
  });
});
