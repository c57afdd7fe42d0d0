import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inSlices } from '../../src/util/wait.ts';
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
