import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { median, ratios, spread, summarize } from '../../bench/statistics.ts';

describe('the median', () => {
  const cases: readonly (readonly [values: readonly number[], middle: number])[] = [
    [[7], 7],
    [[10, 9, 100], 10],
    [[4, 1, 3, 2], 2.5],
  ];
  for (const [values, middle] of cases) {
    test(`of ${values} is ${middle}`, () => {
      assert.equal(median(values), middle);
    });
  }

  test('leaves the values in their order', () => {
    const values = [3, 1, 2];
    median(values);
    assert.deepEqual(values, [3, 1, 2]);
  });
});

test('a summary has median and range, and none comes of nothing', () => {
  assert.deepEqual(summarize([3, 10, 4]), { median: 4, least: 3, most: 10 });
  assert.equal(summarize([]), undefined);
});

test('the spread is half of the range as a share of the median', () => {
  assert.equal(spread({ median: 10, least: 9, most: 12 }), 0.15);
  assert.equal(spread({ median: 0, least: 0, most: 0 }), 0);
});

test('ratios are taken within a round, and rounds that one of the two has not got are left out', () => {
  const ours = new Map([
    [0, 10],
    [1, 30],
    [3, 5],
  ]);
  const theirs = new Map([
    [0, 5],
    [1, 10],
    [2, 1],
  ]);
  assert.deepEqual(ratios(ours, theirs), [2, 3]);
});
