import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TokenBucket } from '../../src/util/token-bucket.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { settle } from '../support/until.ts';

test('a burst passes at once, then the rate holds, in the order of asking', async () => {
  const clock = new ManualClock();
  const bucket = new TokenBucket({ clock, ratePerSecond: 5, burst: 10 });
  const passed: number[] = [];
  for (let n = 0; n < 13; n += 1) bucket.take(new AbortController().signal).then(() => passed.push(n));
  await settle();
  assert.equal(passed.length, 10);
  clock.advance(199);
  await settle();
  assert.equal(passed.length, 10);
  clock.advance(1);
  await settle();
  assert.deepEqual(passed.slice(10), [10]);
  clock.advance(400);
  await settle();
  assert.deepEqual(passed.slice(10), [10, 11, 12]);
});

test('the bucket fills again while nobody asks, but never over the burst', async () => {
  const clock = new ManualClock();
  const bucket = new TokenBucket({ clock, ratePerSecond: 5, burst: 2 });
  clock.advance(60_000);
  let passed = 0;
  for (let n = 0; n < 4; n += 1) bucket.take(new AbortController().signal).then(() => (passed += 1));
  await settle();
  assert.equal(passed, 2);
});

test('whoever is aborted does not wait, and leaves no timer behind', async () => {
  const clock = new ManualClock();
  const bucket = new TokenBucket({ clock, ratePerSecond: 1, burst: 1 });
  const controller = new AbortController();
  await bucket.take(controller.signal);
  const waiting = bucket.take(controller.signal);
  controller.abort();
  await waiting;
  assert.equal(clock.pendingTimers, 0);
});

test('tryTake refuses instead of waiting, and a refusal costs nothing', () => {
  const clock = new ManualClock();
  const bucket = new TokenBucket({ clock, ratePerSecond: 1, burst: 2 });
  const tries = () => Array.from({ length: 4 }, () => bucket.tryTake());
  assert.deepEqual(tries(), [true, true, false, false]);
  clock.advance(1_000);
  assert.deepEqual(tries(), [true, false, false, false]);
});
