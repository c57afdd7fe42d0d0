import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Service, ServiceKey, ServicePortSpec } from '../../src/model/service.ts';
import { SERVICE_LIMITS } from '../../src/services/service-limits.ts';
import { ServiceTracker, type ServiceTrackerOptions } from '../../src/services/service-tracker.ts';
import { service as anyService, address as ip } from '../rules/fixtures.ts';

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
    const at = { address: ip(address), ready: true, serving: true, terminating: false };
    const group = { addresses: [at], ports: [{ name: '', protocol: 'TCP' as const, port }] };
    it.apply([{ kind: 'EndpointSlice', key, value: { key, service: key, group } }]);
  };
  return { it, put, endpointAt };
}

describe('a Service with many ports and addresses', () => {
  test('is large where its rules would be a product, and only there', () => {
    const isLarge = (fields: Partial<Service>) => {
      const { it, put } = tracker();
      put(fields);
      const made = new Set(it.takeDelta().upserted.map((port) => port.isLarge ?? false));
      assert.equal(made.size, 1);
      return made.has(true);
    };
    assert.equal(isLarge({ ports: ports(1_000) }), false, 'one cluster IP');
    assert.equal(isLarge({ ports: ports(2), externalIPs: addresses(500) }), false);
    assert.equal(isLarge({ ports: ports(10), externalIPs: addresses(40) }), false);
    assert.equal(isLarge({ ports: ports(600), externalIPs: addresses(600) }), true);
    const balanced = { ports: ports(100), loadBalancerIPs: [ip('203.0.113.1')] };
    assert.equal(isLarge(balanced), false);
    const ranges = addresses(100).map((network) => ({ network, prefixLength: 32 }));
    assert.equal(isLarge({ ...balanced, loadBalancerSourceRanges: ranges }), true);
  });

  test('shares the lists of its addresses, and goes without an external IP that any port must not have', () => {
    const { it, put, endpointAt } = tracker();
    endpointAt('198.51.0.7', 44);
    put({ ports: ports(600), externalIPs: addresses(600) });
    const { upserted, refused } = it.takeDelta();
    assert.equal(new Set(upserted.map(({ externalIPs }) => externalIPs)).size, 1);
    assert.equal(upserted[0]?.externalIPs.length, 599);
    assert.deepEqual(refused, [
      { name: 'shop/web', what: 'external IP 198.51.0.7:44', reason: 'it is an endpoint of a Service' },
    ]);
  });

  test('does not take a cluster IP as a load-balancer IP, whichever comes first', () => {
    const cluster = { key: 'kube-system/dns', clusterIPs: [ip('10.96.0.10')] } as const;
    const thief = {
      ports: ports(600),
      loadBalancerIPs: [ip('10.96.0.10'), ip('203.0.113.1')],
      externalIPs: addresses(9),
    };
    for (const order of [
      [cluster, thief],
      [thief, cluster],
    ]) {
      const { it, put } = tracker();
      for (const fields of order) {
        put(fields);
        it.takeDelta(0);
      }
      const all = it.takeDelta().upserted.filter(({ isLarge }) => isLarge);
      assert.deepEqual(all[0]?.loadBalancerIPs, ['203.0.113.1']);
    }
    const { it, put } = tracker();
    put(thief);
    it.takeDelta();
    put(cluster);
    assert.deepEqual(it.takeDelta().upserted.find(({ isLarge }) => isLarge)?.loadBalancerIPs, ['203.0.113.1']);
  });

  test('gets so much and no more; it is told once, with an event', () => {
    const { it, put } = tracker();
    const max = SERVICE_LIMITS;
    const ranges = addresses(max.sourceRanges + 1).map((network) => ({ network, prefixLength: 32 }));
    const fields = {
      uid: 'a-b-c',
      ports: ports(max.ports + 3),
      externalIPs: addresses(300),
      loadBalancerIPs: addresses(65, '203.0'),
      loadBalancerSourceRanges: ranges,
    };
    put(fields);
    const { upserted, refused, unserved } = it.takeDelta();
    assert.equal(upserted.length, max.ports);
    const [first] = upserted;
    assert.deepEqual(
      [first?.externalIPs.length, first?.loadBalancerIPs.length, first?.loadBalancerSourceRanges?.length],
      [256, 64, max.sourceRanges],
    );
    assert.deepEqual(
      refused.map(({ name, what, uid }) => `${name}: ${what} (${uid})`),
      [
        'shop/web: 44 of its 300 external IPs (a-b-c)',
        'shop/web: 1 of its 65 load-balancer IPs (a-b-c)',
        'shop/web: 1 of its 4097 load balancer source ranges (a-b-c)',
      ],
    );
    assert.deepEqual(unserved, [
      {
        name: 'shop/web:p4096',
        more: 2,
        reason: 'a Service gets at most 4096 ports; use several Services',
        uid: 'a-b-c',
      },
    ]);
    put({ ...fields, affinity: { type: 'ClientIP', timeoutSeconds: 9 } });
    const again = it.takeDelta();
    assert.deepEqual([again.upserted.length, again.refused, again.unserved], [max.ports, [], []]);
  });
});

test('a Service of few ports gets more addresses', () => {
  const { it, put } = tracker();
  put({ ports: ports(1_000), externalIPs: addresses(1_050) });
  assert.deepEqual(
    it.takeDelta().refused.map(({ what, reason }) => `${what}: ${reason}`),
    ['2 of its 1050 external IPs: a Service gets at most 1048 for 1000 ports; use several Services'],
  );
});

test('five thousand SCTP ports are one report', () => {
  const { it, put } = tracker();
  put({ ports: ports(5_000, 'SCTP') });
  const { unserved } = it.takeDelta();
  assert.deepEqual(
    unserved.map(({ name, more, reason }) => [name, more, reason]),
    [
      ['shop/web:p4096', 903, 'a Service gets at most 4096 ports; use several Services'],
      ['shop/web:p0', 4_095, 'SCTP is not supported in user space'],
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
    const reasons = Map.groupBy(it.takeDelta().refused, ({ reason }) => reason);
    assert.deepEqual([...reasons].map(([reason, { length }]) => [/^it is an endpoint/.test(reason), length]).sort(), [
      [false, 499],
      [true, 1],
    ]);
    put({ key: 'shop/taken', clusterIPs: [SHARED] });
    assert.equal(it.takeDelta().refused.length, 500);
  });
});
