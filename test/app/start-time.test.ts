import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startTime } from '../../src/app/start-time.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

test('the start stays where it is while the wall clock goes on, and moves with it when that is set', () => {
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
