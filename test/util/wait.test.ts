import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inSlices, waitUntil } from '../../src/util/wait.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

test('steps run until there are no more, a few at a time', async () => {
  const clock = new ManualClock();
  let steps = 0;
  const done = inSlices(clock, () => {
    clock.advance(2);
    return ++steps < 7;
  });
  assert.equal(steps, 3, 'the first slice has run');
  for (const expected of [6, 7]) {
    await Promise.resolve();
    clock.advance(0);
    await Promise.resolve();
    assert.equal(steps, expected);
  }
  await done;
  assert.equal(clock.pendingTimers, 0);
});

test('a step that throws ends it', async () => {
  const failing = inSlices(new ManualClock(), () => {
    throw new Error('here');
  });
  await assert.rejects(failing, /here/);
});

/** How long it took. */
async function waited(isDone: (ms: number) => boolean, signal = new AbortController().signal) {
  const clock = new ManualClock();
  const startedAt = clock.now();
  let isOver = false;
  const over = waitUntil(() => isDone(clock.now() - startedAt), 10_000, clock, signal).then(() => {
    isOver = true;
  });
  while (!isOver && clock.now() - startedAt < 3_600_000) {
    await new Promise(setImmediate);
    if (!isOver) clock.advance(20);
  }
  await over;
  return clock.now() - startedAt;
}

test('a wait ends when something is done, at its deadline, or when it is aborted', async () => {
  assert.equal(await waited((ms) => ms >= 100), 100);
  assert.equal(await waited(() => false), 10_000);
  assert.equal(await waited(() => false, AbortSignal.abort()), 0);
});
