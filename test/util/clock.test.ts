import assert from 'node:assert/strict';
import { test } from 'node:test';
import { wholeMsLeft } from '../../src/util/clock.ts';
import { startTime } from '../../src/util/system-clock.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

test('time that is left is shown in whole milliseconds, without the rounding errors of sums, and never below zero', () => {
  assert.equal(wholeMsLeft(60_000.000_000_000_01), 60_000);
  assert.equal(wholeMsLeft(59_999.6), 60_000);
  assert.equal(wholeMsLeft(0.4), 0);
  assert.equal(wholeMsLeft(-0.4), 0);
  assert.equal(wholeMsLeft(-5), 0);
});

test('the time of the start is corrected when the wall clock is set', () => {
  const manual = new ManualClock(0);
  let setMs = 0;
  const startedAt = startTime({
    now: () => manual.now(),
    wallNow: () => manual.wallNow() + setMs,
    after: (delayMs, callback) => manual.after(delayMs, callback),
  });
  manual.advance(5_000);
  assert.equal(startedAt(), 0);
  setMs = 1_700_000_000_000;
  manual.advance(2_000);
  assert.equal(startedAt(), 1_700_000_000_000);
});
