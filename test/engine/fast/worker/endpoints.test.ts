import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CounterMemory, CounterSlabs, PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import { Endpoints } from '../../../../src/engine/fast/worker/endpoints.ts';
import { COUNTER, COUNTERS_BYTES } from '../../../../src/engine/fast/worker/protocol.ts';
import type { Backends } from '../../../../src/model/data-plane.ts';
import { endpointName } from '../../../../src/model/endpoint.ts';
import type { Member } from '../../../../src/services/member.ts';
import { MaglevTables } from '../../../../src/services/schedulers/maglev-tables.ts';
import { endpoint, remembering } from '../../../services/backends.ts';
import { seededRandom } from '../../../support/seeded-random.ts';

function table() {
  const counters = new PortCounters(new CounterMemory());
  const strangers: string[] = [];
  const endpoints = new Endpoints({
    random: Math.random,
    affinity: remembering(1),
    maglevTables: new MaglevTables(),
    onUnknown: (name) => strangers.push(name),
  });
  const { picker } = endpoints;
  const update = (hosts: readonly number[], draining?: readonly number[]): void => {
    const backends: Backends = {
      endpoints: hosts.map(endpoint),
      ...(draining && { draining: draining.map(endpoint) }),
      affinity: { type: 'None' },
    };
    // As another thread gets them: with other objects for the endpoints.
    endpoints.update(structuredClone(counters.follow(backends)), 0);
  };
  const read = () =>
    counters
      .readEndpoints()
      .map((each) => `${endpointName(each.endpoint)} ${each.counters.connections}`)
      .toSorted();
  const count = (target: { readonly counters: Float64Array }): void => {
    target.counters[COUNTER.connections] = (target.counters[COUNTER.connections] ?? 0) + 1;
  };
  const pick = (): Member => {
    const picked = picker.pick('', 0).next();
    assert.ok(picked !== undefined);
    return picked;
  };
  return { counters, picker, endpoints, strangers, update, read, count, pick };
}

test('an endpoint that no update has brought is served without counters, and reported once', () => {
  const { counters, endpoints, strangers, update, count, pick } = table();
  // As if an update had been lost: this side has never heard of the endpoint.
  counters.follow({ endpoints: [endpoint(1)], affinity: { type: 'None' } });
  update([1]);
  const target = endpoints.target(pick());
  assert.equal(target.name, '10.0.0.1:80');
  count(target);
  assert.equal(endpoints.target(pick()), target);
  assert.deepEqual(strangers, ['10.0.0.1:80']);
});

const HOSTS = [1, 2, 3, 4, 5, 6];

/** Random updates. After each, a connection that exists and a new one count at every endpoint. */
function run(seed: number): void {
  const random = seededRandom(seed);
  const some = (): number[] => HOSTS.concat(HOSTS).filter(() => random() < 0.25);
  const { picker, endpoints, update, read, count } = table();
  let expected = new Map<string, number>();
  for (let step = 0; step < 30; step++) {
    const [hosts, draining] = [some(), random() < 0.5 ? some() : undefined];
    update(hosts, draining);
    const names = [...hosts, ...(draining ?? [])].map((host) => endpointName(endpoint(host)));
    expected = new Map(names.map((name) => [name, expected.get(name) ?? 0]));
    const { members } = picker.pool;
    const picked = members.map((each) => endpoints.target(each));
    assert.ok(picked.every((target, index) => target.member === members[index]));
    for (const target of [...HOSTS.map((host) => endpoints.finder()(endpoint(host))), ...picked]) {
      count(target);
      const before = expected.get(target.name);
      if (before !== undefined) expected.set(target.name, before + 1);
    }
    assert.deepEqual(read(), Array.from(expected, ([name, times]) => `${name} ${times}`).toSorted(), `seed ${seed}`);
  }
}

test('after any updates both threads count in the same places, also when endpoints drain and come back', () => {
  for (let seed = 1; seed <= 200; seed++) run(seed);
});

test('slabs give each block once, many from one memory, and a big one its own', () => {
  const slabs = new CounterSlabs();
  const blocks = Array.from({ length: 1000 }, () => slabs.take(2));
  const seen = new Set(blocks.map(({ memory, offset }) => [memory, offset]));
  assert.equal(seen.size, 1000);
  for (const [index, { memory, offset }] of blocks.entries()) {
    const next = blocks[index + 1];
    if (next?.memory === memory) assert.ok(next.offset >= offset + 2 * COUNTERS_BYTES);
    assert.ok(offset + 2 * COUNTERS_BYTES <= memory.byteLength);
  }
  assert.ok(new Set(blocks.map(({ memory }) => memory)).size < 100);
  const { memory, offset } = slabs.take(5000);
  assert.ok(offset + 5000 * COUNTERS_BYTES <= memory.byteLength);
});
