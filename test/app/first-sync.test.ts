import assert from 'node:assert/strict';
import { test } from 'node:test';
import { caughtUp, firstSync } from '../../src/app/first-sync.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

function rig() {
  const clock = new ManualClock();
  const synced = new Set<IpFamily>();
  const stopped = new AbortController();
  let isOver = false;
  const over = firstSync({
    families: ['IPv4', 'IPv6'],
    health: { lastUpdated: (family) => (synced.has(family) ? { wallMs: 0, monotonicMs: 0 } : undefined) },
    clock,
    signal: stopped.signal,
  }).then(() => {
    isOver = true;
  });
  const pass = async (ms: number) => {
    for (let i = 0; i < ms; i += 20) {
      clock.advance(20);
      await new Promise(setImmediate);
    }
    return isOver;
  };
  return { synced, stopped, over, pass };
}

test('the first sync is there with that of the last family', async () => {
  const { synced, pass } = rig();
  assert.equal(await pass(100), false);
  synced.add('IPv4');
  assert.equal(await pass(100), false);
  synced.add('IPv6');
  assert.equal(await pass(20), true);
});

test('it is not waited for longer than 10 s', async () => {
  const { pass } = rig();
  assert.equal(await pass(9_900), false);
  assert.equal(await pass(100), true);
});

test('nor when the proxy is to stop', async () => {
  const { stopped, over } = rig();
  stopped.abort();
  await over;
});

test('a successor has caught up when all is known to its listeners, or after 10 s', async () => {
  for (const lastsMs of [100, 3_600_000]) {
    const clock = new ManualClock();
    const startedAt = clock.now();
    const over = caughtUp(
      {
        get hasCaughtUp() {
          return clock.now() - startedAt >= lastsMs;
        },
      },
      { clock, signal: new AbortController().signal },
    );
    let isOver = false;
    void over.then(() => {
      isOver = true;
    });
    while (!isOver) {
      await new Promise(setImmediate);
      if (!isOver) clock.advance(20);
    }
    assert.equal(clock.now() - startedAt, Math.min(lastsMs, 10_000));
  }
});
