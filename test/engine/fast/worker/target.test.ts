import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COUNTER } from '../../../../src/engine/core/target.ts';
import { CounterMemory, CounterSlabs, PortCounters } from '../../../../src/engine/fast/port-counters.ts';
import { COUNTERS_BYTES, type CounterBlock, countersIn } from '../../../../src/engine/fast/worker/protocol.ts';
import { Target } from '../../../../src/engine/fast/worker/target.ts';
import type { Backends } from '../../../../src/model/data-plane.ts';
import { endpointName } from '../../../../src/model/endpoint.ts';
import { Picker } from '../../../../src/services/picker.ts';
import { MaglevTables } from '../../../../src/services/schedulers/maglev-tables.ts';
import { endpoint, remembering } from '../../../services/backends.ts';
import { seededRandom } from '../../../support/seeded-random.ts';

function table() {
  const counters = new PortCounters(new CounterMemory());
  let fresh: ReadonlyMap<string, CounterBlock> = new Map();
  const picker = new Picker<Target>({
    random: Math.random,
    create: (endpoint) => new Target(endpoint, countersIn(fresh.get(endpoint.name) as CounterBlock)),
    affinity: remembering(1),
    maglevTables: new MaglevTables(),
  });
  const update = (hosts: readonly number[], draining?: readonly number[]): void => {
    const backends: Backends = {
      endpoints: hosts.map(endpoint),
      ...(draining && { draining: draining.map(endpoint) }),
      affinity: { type: 'None' },
    };
    // As another thread gets them: with other objects for the endpoints.
    const counted = structuredClone(counters.follow(backends));
    fresh = counted.counters;
    picker.update(counted, 0);
  };
  const read = () =>
    counters
      .readEndpoints()
      .map((each) => `${endpointName(each.endpoint)} ${each.counters.connections}`)
      .toSorted();
  const count = (target: Target): void => {
    target.counters[COUNTER.connections] = (target.counters[COUNTER.connections] ?? 0) + 1;
  };
  return { picker, update, read, count };
}

const HOSTS = [1, 2, 3, 4, 5, 6];

/** Random updates. After each, a connection that exists and a new one count at every endpoint. */
function run(seed: number): void {
  const random = seededRandom(seed);
  const some = (): number[] => HOSTS.concat(HOSTS).filter(() => random() < 0.25);
  const { picker, update, read, count } = table();
  let expected = new Map<string, number>();
  for (let step = 0; step < 30; step++) {
    const [hosts, draining] = [some(), random() < 0.5 ? some() : undefined];
    update(hosts, draining);
    const names = [...hosts, ...(draining ?? [])].map((host) => endpointName(endpoint(host)));
    expected = new Map(names.map((name) => [name, expected.get(name) ?? 0]));
    const named = HOSTS.flatMap((host) => picker.pool.find(endpointName(endpoint(host))) ?? []);
    for (const target of [...named, ...picker.pool.members]) {
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

test('slabs give each block once, and many from one memory', () => {
  const slabs = new CounterSlabs();
  const blocks = Array.from({ length: 1000 }, () => slabs.take());
  const seen = new Set(blocks.map(({ memory, offset }) => [memory, offset]));
  assert.equal(seen.size, 1000);
  for (const [index, { memory, offset }] of blocks.entries()) {
    const next = blocks[index + 1];
    if (next?.memory === memory) assert.ok(next.offset >= offset + COUNTERS_BYTES);
    assert.ok(offset + COUNTERS_BYTES <= memory.byteLength);
  }
  assert.ok(new Set(blocks.map(({ memory }) => memory)).size < 100);
});
