import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CounterSlabs, counterMemory, PortCounters } from '../../../src/engine/fast/port-counters.ts';
import { COUNTER, COUNTERS_BYTES, type CounterBlocks } from '../../../src/engine/fast/worker/protocol.ts';
import type { Endpoint } from '../../../src/model/endpoint.ts';
import { address as ip } from '../../rules/fixtures.ts';

const AFFINITY = { type: 'None' } as const;

function endpoint(host: number): Endpoint {
  return { address: ip(`10.0.0.${host}`), port: 80 };
}

/** What a worker does. */
function count({ memory, offset }: CounterBlocks, block = 0): void {
  const counters = new Float64Array(memory, offset + block * COUNTERS_BYTES);
  counters[COUNTER.connections] = (counters[COUNTER.connections] as number) + 1;
}

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

test('endpoints that stay go on counting, those that come begin at nothing, whoever counts beside them', () => {
  const memory = counterMemory();
  const [one, other] = [new PortCounters(memory), new PortCounters(memory)];
  const first = one.follow({ endpoints: [endpoint(1), endpoint(2)], affinity: AFFINITY });
  const others = other.follow({ endpoints: [endpoint(1)], affinity: AFFINITY });
  assert.deepEqual(first.fresh, [0, 1]);
  count(first.counters, 1);
  count(others.counters);
  count(others.counters);
  count(one.shared);
  const second = one.follow({ endpoints: [endpoint(3), endpoint(2)], affinity: AFFINITY });
  assert.deepEqual(second.fresh, [0]);
  count(first.counters, 1);
  const read = (counters: PortCounters) =>
    counters.readEndpoints().map((each) => `${each.endpoint.address} ${each.counters.connections}`);
  assert.deepEqual(read(one), ['10.0.0.3 0', '10.0.0.2 2']);
  assert.deepEqual(read(other), ['10.0.0.1 2']);
  assert.deepEqual([one.read().connections, other.read().connections], [1, 0]);
});

test('a draining endpoint goes on counting, in both lists it is one, and another worker inherits it', () => {
  const counters = new PortCounters(counterMemory());
  count(counters.follow({ endpoints: [endpoint(1)], affinity: AFFINITY }).counters);
  const draining = { endpoints: [endpoint(2)], draining: [endpoint(1), endpoint(3), endpoint(2)], affinity: AFFINITY };
  assert.deepEqual(counters.follow(draining).fresh, [0, 2]);
  const read = () => counters.readEndpoints().map((each) => [each.endpoint.address, each.counters.connections]);
  const expected = [
    ['10.0.0.2', 0],
    ['10.0.0.1', 1],
    ['10.0.0.3', 0],
  ];
  assert.deepEqual(read(), expected);
  assert.deepEqual(counters.inherit(draining).fresh, [0, 1, 2]);
  assert.deepEqual(read(), expected);
});
