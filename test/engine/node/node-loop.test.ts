import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Deadline } from '../../../src/engine/core/deadlines.ts';
import { NodeLoop } from '../../../src/engine/node/node-loop.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

/** A deadline that notes its name when it is due. */
function recorded(due: string[], name: string): Deadline {
  return new Deadline({ onDue: () => due.push(name) });
}

test('after a standstill a deadline waits for the events that came in time', async () => {
  const [loop, due] = [new NodeLoop(systemClock), [] as string[]];
  const [cancelled, restarted, last] = ['cancelled', 'restarted', 'last'].map((name) => recorded(due, name)) as [
    Deadline,
    Deadline,
    Deadline,
  ];
  for (const deadline of [cancelled, restarted, last]) loop.start(deadline, 1);
  // Node's loop runs this behind its timers, as it does events.
  const events = turn().then(() => {
    cancelled.cancel();
    loop.start(restarted, 60_000);
  });
  for (const until = performance.now() + 5; performance.now() < until; );
  await events;
  while (last.isWaiting) await turn();
  assert.deepEqual(due, ['last']);
  restarted.cancel();
});

test('deadlines of any delay expire in their order, by one timer, which does not outlive them', () => {
  const clock = new ManualClock();
  const [loop, due] = [new NodeLoop(clock), [] as string[]];
  const [late, early, never] = ['late', 'early', 'never'].map((name) => recorded(due, name)) as [
    Deadline,
    Deadline,
    Deadline,
  ];
  loop.start(late, 20.5);
  loop.start(never, 15);
  loop.start(early, 10);
  assert.equal(clock.pendingTimers, 1);
  clock.advance(10);
  assert.deepEqual(due, ['early']);
  never.cancel();
  clock.advance(20);
  assert.deepEqual(due, ['early', 'late']);
  loop.start(early, 10);
  early.cancel();
  assert.equal(clock.pendingTimers, 0);
});
