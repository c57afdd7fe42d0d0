import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mayTakeMore } from '../../src/util/fair-share.ts';

const LIMIT = 16_384;

/** What each tenant holds when all of them, in turns, have tried to take this many. */
function afterTries(tries: readonly number[], before: readonly number[] = []): number[] {
  const held = tries.map((_, tenant) => before[tenant] ?? 0);
  for (let round = 0; round < Math.max(...tries); round++) {
    for (const [tenant, wanted] of tries.entries()) {
      const free = LIMIT - held.reduce((sum, each) => sum + each, 0);
      if (round < wanted && mayTakeMore(held[tenant] ?? 0, free)) held[tenant] = (held[tenant] ?? 0) + 1;
    }
  }
  return held;
}

for (const [tenants, share] of [
  [1, 4 / 5],
  [2, 4 / 9],
  [6, 4 / 25],
  [100, 4 / 401],
] as const) {
  test(`each of ${tenants} greedy tenants gets its share, and something stays free`, () => {
    const held = afterTries(Array.from({ length: tenants }, () => LIMIT));
    for (const each of held) assert.ok(Math.abs(each - share * LIMIT) <= tenants, `${each}, not ${share * LIMIT}`);
    assert.ok(held.reduce((sum, each) => sum + each, 0) < LIMIT);
  });
}

test('a newcomer gets what it needs beside a greedy tenant, which gets no more', () => {
  const [greedy = 0] = afterTries([LIMIT]);
  assert.deepEqual(afterTries([LIMIT, 1000], [greedy]), [greedy, 1000]);
});

test('where all is taken, nobody gets more; a limit of one has room for one', () => {
  assert.equal(mayTakeMore(0, 0), false);
  assert.equal(mayTakeMore(5, -1), false);
  assert.equal(mayTakeMore(0, 1), true);
});
