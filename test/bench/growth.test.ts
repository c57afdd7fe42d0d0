import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { grows } from '../../bench/soak/growth.ts';
import { seededRandom } from '../support/seeded-random.ts';

describe('growth', () => {
  const random = seededRandom(3);
  const noisy = (count: number, at: (minute: number) => number) =>
    Array.from({ length: count }, (_, minute) => at(minute) + 10 * random());

  test('a leak is found: the longer the run, the smaller', () => {
    assert.ok(
      grows(
        noisy(14, (minute) => 100 + 6 * minute),
        5,
      ),
    );
    assert.ok(
      grows(
        noisy(240, (minute) => 100 + 0.35 * minute),
        5,
      ),
    );
  });

  test('neither noise nor a warm-up is a leak', () => {
    for (let run = 0; run < 1_000; run++)
      assert.ok(
        !grows(
          noisy(20, () => 100),
          5,
        ),
      );
    assert.ok(
      !grows(
        noisy(30, (minute) => 100 + 20 * Math.min(minute, 10)),
        5,
      ),
    );
  });

  test('of a few figures nothing can be said', () => {
    assert.ok(!grows([], 0));
    assert.ok(!grows([1, 2, 3, 4, 5, 6], 0));
  });
});
