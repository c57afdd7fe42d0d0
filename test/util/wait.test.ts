import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inSlices, oneAtATime, waitUntil } from '../../src/util/wait.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { settle } from '../support/until.ts';

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

const HERE = new AbortController().signal;

/** Work that a test ends piece by piece. */
function setUp() {
  const begun: string[] = [];
  const ends: PromiseWithResolvers<string>[] = [];
  const work = oneAtATime((name: string) => {
    begun.push(name);
    const end = Promise.withResolvers<string>();
    ends.push(end);
    return end.promise;
  });
  return { begun, ends, work };
}

test('calls run one after another, also when one fails', async () => {
  const { begun, ends, work } = setUp();
  const [one, two, three] = ['one', 'two', 'three'].map((name) => work(name, HERE));
  await settle();
  assert.deepEqual(begun, ['one']);
  ends[0]?.reject(new Error('broken'));
  await assert.rejects(one as Promise<unknown>, /broken/);
  await settle();
  assert.deepEqual(begun, ['one', 'two']);
  ends[1]?.resolve('done');
  assert.equal(await two, 'done');
  await settle();
  ends[2]?.resolve('done, too');
  assert.equal(await three, 'done, too');
});

test('a call that is aborted while it waits does no work', async () => {
  const { begun, ends, work } = setUp();
  const left = new AbortController();
  const one = work('one', HERE);
  const two = work('two', left.signal);
  left.abort();
  await settle();
  ends[0]?.resolve('done');
  assert.deepEqual(await Promise.all([one, two]), ['done', undefined]);
  assert.deepEqual(begun, ['one']);
});
