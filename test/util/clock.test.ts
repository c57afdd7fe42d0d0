import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wholeMsLeft } from '../../src/util/clock.ts';

test('time that is left is shown in whole milliseconds, without the rounding errors of sums, and never below zero', () => {
  assert.equal(wholeMsLeft(60_000.000_000_000_01), 60_000);
  assert.equal(wholeMsLeft(59_999.6), 60_000);
  assert.equal(wholeMsLeft(0.4), 0);
  assert.equal(wholeMsLeft(-0.4), 0);
  assert.equal(wholeMsLeft(-5), 0);
});
