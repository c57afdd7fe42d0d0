import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assignClusterIPs } from '../../src/manifests/cluster-ips.ts';
import { type Address, type Cidr, cidrContains } from '../../src/model/address.ts';
import type { Service, ServiceKey } from '../../src/model/service.ts';
import { cidr } from '../support/model.ts';
import { seededRandom } from '../support/seeded-random.ts';

const waiting = (name: string, ...families: readonly string[]) =>
  ({
    key: `default/${name}`,
    clusterIPs: [],
    externalIPs: [],
    loadBalancerIPs: [],
    families: families.length === 0 ? ['IPv4'] : families,
  }) as unknown as Service;
const written = (name: string, address: string) =>
  ({ key: `default/${name}`, clusterIPs: [address], externalIPs: [], loadBalancerIPs: [] }) as unknown as Service;
const named = (count: number) => Array.from({ length: count }, (_, index) => waiting(`s${index}`));

const only = (assigned: ReadonlyMap<ServiceKey, readonly Address[]>, name: string) =>
  assigned.get(`default/${name}`)?.join();

test('the same Services get the same addresses, in whatever order they come', () => {
  const services = [...named(200), written('fixed', '10.96.7.7')];
  const ranges = [cidr('10.96.0.0/16')];
  const assigned = assignClusterIPs(services, ranges);
  const random = seededRandom(1);
  const shuffled = services.map((each) => ({ each, at: random() })).sort((a, b) => a.at - b.at);
  const again = assignClusterIPs(
    shuffled.map(({ each }) => each),
    ranges,
  );
  assert.deepEqual([...again].sort(), [...assigned].sort());
  assert.equal(assigned.size, 200, 'not those that were written with one');
  const addresses = [...assigned.values()].map((each) => each.join());
  assert.equal(new Set(addresses).size, 200);
  for (const address of addresses) assert.ok(cidrContains(ranges[0] as Cidr, address as Address), address);
  // They are in files of today's users, and must not change with a release.
  assert.equal(only(assigned, 's0'), '10.96.181.137');
});

test('another Service leaves the addresses of the others alone', () => {
  const before = assignClusterIPs(named(100), [cidr('10.96.0.0/12')]);
  for (const name of ['a', 'm', 'z', 's05']) {
    const after = assignClusterIPs([waiting(name), ...named(100)], [cidr('10.96.0.0/12')]);
    for (const [key, addresses] of before) assert.deepEqual(after.get(key), addresses, `${key} after ${name}`);
  }
});

test('an address that was written is never given, be it a cluster IP or another one', () => {
  const ranges = [cidr('10.96.0.0/16')];
  const own = only(assignClusterIPs([waiting('a')], ranges), 'a') as string;
  const external = { ...written('b', '10.0.0.1'), externalIPs: [own] } as unknown as Service;
  for (const other of [written('b', own), external]) {
    const now = only(assignClusterIPs([waiting('a'), other], ranges), 'a');
    assert.notEqual(now, own);
    assert.match(now ?? '', /^10\.96\./);
  }
});

test('a small range is used to its last address, first those that are not for people; then nothing is left', () => {
  const places = (text: string, count: number) => {
    const found = [...assignClusterIPs(named(count), [cidr(text)]).values()].map((each) => each.join());
    return found
      .map((each) => (each === '' ? undefined : Number(each.split('.')[3])))
      .sort((a = 999, b = 999) => a - b);
  };
  const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);
  assert.deepEqual(places('10.96.0.0/27', 15), numbers(16, 30), 'neither the broadcast nor the first 16');
  assert.deepEqual(places('10.96.0.0/27', 30), numbers(1, 30));
  assert.deepEqual(places('10.96.0.0/27', 31), [...numbers(1, 30), undefined]);
  assert.deepEqual(places('10.96.0.0/30', 2), [1, 2]);
  assert.deepEqual(places('10.96.0.0/31', 2), [0, 1]);
  assert.deepEqual(places('10.96.0.9/32', 1), [9]);
});

test('each family has its range, and the order is that of the Service', () => {
  const ranges = [cidr('10.96.0.0/16'), cidr('fd00:96::/64')];
  const assigned = assignClusterIPs(
    [waiting('one', 'IPv6'), waiting('both', 'IPv6', 'IPv4'), waiting('other', 'IPv4')],
    ranges,
  );
  assert.match(only(assigned, 'one') ?? '', /^fd00:96::[0-9a-f:]+$/);
  assert.match(only(assigned, 'both') ?? '', /^fd00:96::[0-9a-f:]+,10\.96\.\d+\.\d+$/);
  assert.match(only(assigned, 'other') ?? '', /^10\.96\.\d+\.\d+$/);
  assert.equal(only(assignClusterIPs([waiting('one', 'IPv6')], [cidr('10.96.0.0/16')]), 'one'), '');
  assert.match(only(assignClusterIPs([waiting('one', 'IPv6')], [cidr('fd00::ff/128')]), 'one') ?? '', /^fd00::ff$/);
});
