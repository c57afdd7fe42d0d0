import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newPortSearch, PortWalk } from '../../src/engine/port-walk.ts';

function walk(first: number, last: number, from: number, reserved: readonly number[] = []): number[] {
  const ports = new PortWalk({ range: { first, last }, reserved: new Set(reserved) });
  const search = newPortSearch();
  search.first = ports.placeOf(from);
  const tried: number[] = [];
  for (let port = ports.next(search); port !== undefined; port = ports.next(search)) tried.push(port);
  return tried;
}

test('every port of a range is tried once, whatever its size and the first one', () => {
  for (let size = 1; size <= 300; size++) {
    const all = Array.from({ length: size }, (_, i) => 1000 + i);
    for (const from of [1000, 1000 + (size >> 1), 999 + size, 1, 65_535]) {
      assert.deepEqual(walk(1000, 999 + size, from).toSorted(), all);
    }
  }
});

test('the first one is the client’s own where that is in the range, and the next ones are far away', () => {
  const [first, ...others] = walk(32_768, 60_999, 40_000).slice(0, 32);
  assert.equal(first, 40_000);
  for (const port of others) assert.ok(Math.abs(port - 40_000) > 100, `${port}`);
  assert.equal(new Set(walk(32_768, 60_999, 80).slice(0, 1)).size, 1);
  assert.notEqual(walk(32_768, 60_999, 80)[0], walk(32_768, 60_999, 81)[0], 'another client’s is another');
});

test('reserved ports are left out', () => {
  assert.deepEqual(walk(100, 109, 104, [104, 101, 109]).toSorted(), [100, 102, 103, 105, 106, 107, 108]);
  assert.deepEqual(walk(100, 101, 100, [100, 101]), []);
});
