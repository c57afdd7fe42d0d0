import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { patience, showProgress, startTime } from '../../src/app/progress.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

/** A start whose state the test changes. */
function start({ isTTY = true, format = 'auto' as 'auto' | 'text' | 'json', TERM = 'xterm' } = {}) {
  const clock = new ManualClock();
  const shown: string[] = [];
  const written: string[] = [];
  const state = {
    lastContactAt: undefined as number | undefined,
    isSynced: false,
    pendingServices: 0,
    count: 0,
    openCount: 0,
    isGone: false,
  };
  const updated = new Set<string>();
  const stopped = new AbortController();
  const line = {
    isTTY,
    show: (text: string) => void shown.push(text),
    clear: () => void shown.push(''),
    write: (text: string) => {
      if (state.isGone) throw new Error('EIO');
      written.push(text);
    },
  };
  showProgress({
    line,
    format,
    env: { TERM },
    clock,
    source: {
      server: 'api:6443',
      status: () => ({ connected: false, lastContactAt: state.lastContactAt, listedAt: undefined, staleForMs: 0 }),
    },
    controlPlane: {
      get isSynced() {
        return state.isSynced;
      },
      active: (['IPv4', 'IPv6'] as const).map((family) => ({ family, tracker: state, listeners: state })),
    },
    health: { lastUpdated: (family) => (updated.has(family) ? { wallMs: 0, monotonicMs: 0 } : undefined) },
    signal: stopped.signal,
  });
  return { clock, shown, written, state, updated, stopped };
}

describe('progress of the start', () => {
  test('is shown up to its end, and leaves one line', () => {
    const { clock, shown, written, state, updated } = start();
    clock.advance(1_000);
    assert.equal(shown.at(-1), 'Waiting for the API server api:6443 (1 s)');
    Object.assign(state, { lastContactAt: 1, pendingServices: 2 });
    clock.advance(100);
    assert.equal(shown.at(-1), 'Listing Services from api:6443, 2 Services so far (1 s)');
    Object.assign(state, { isSynced: true, pendingServices: 0, count: 2, openCount: 1 });
    clock.advance(100);
    assert.equal(shown.at(-1), 'Opening listeners: 2 of 4 (1 s)');
    state.openCount = 2;
    updated.add('IPv4');
    clock.advance(100);
    assert.equal(shown.at(-1), 'Installing the rules of 4 Service ports (1 s)');
    updated.add('IPv6');
    clock.advance(100);
    assert.deepEqual(written, ['Ready: 4 Service ports in 1.4 s\n']);
    assert.equal(clock.pendingTimers, 0);
  });

  test('ends silently when the terminal is gone', () => {
    const { clock, written, state, updated } = start();
    state.isGone = true;
    for (const family of ['IPv4', 'IPv6']) updated.add(family);
    clock.advance(1_000);
    assert.deepEqual(written, []);
    assert.equal(clock.pendingTimers, 0);
  });

  test('of a short start is only its end', () => {
    const { clock, shown, written, updated } = start();
    clock.advance(200);
    for (const family of ['IPv4', 'IPv6']) updated.add(family);
    clock.advance(100);
    assert.deepEqual(shown, []);
    assert.equal(written.length, 1);
  });

  test('is erased when the start is aborted', () => {
    const { clock, shown, stopped } = start();
    clock.advance(500);
    stopped.abort();
    assert.equal(shown.at(-1), '');
    clock.advance(500);
    assert.equal(shown.at(-1), '');
    assert.equal(clock.pendingTimers, 0);
  });

  for (const [where, options] of [
    ['where there is no terminal', { isTTY: false }],
    ['between JSON lines', { format: 'json' as const }],
    ['on a terminal that cannot erase a line', { TERM: 'dumb' }],
  ] as const) {
    test(`nothing is shown ${where}`, () => {
      const { clock, shown, written, updated } = start(options);
      clock.advance(1_000);
      for (const family of ['IPv4', 'IPv6']) updated.add(family);
      clock.advance(1_000);
      assert.deepEqual([...shown, ...written], []);
      assert.equal(clock.pendingTimers, 0);
    });
  }
});

/** How long it took, or undefined after an hour. */
async function waited(isDone: (ms: number) => boolean, signal = new AbortController().signal) {
  const clock = new ManualClock();
  const startedAt = clock.now();
  let isOver = false;
  const over = patience(() => isDone(clock.now() - startedAt), clock, signal).then(() => {
    isOver = true;
  });
  while (!isOver && clock.now() - startedAt < 3_600_000) {
    await new Promise(setImmediate);
    if (!isOver) clock.advance(20);
  }
  await over;
  return clock.now() - startedAt;
}

test('a start waits until something is done, for at most 10 s, and not once it is aborted', async () => {
  assert.equal(await waited((ms) => ms >= 100), 100);
  assert.equal(await waited(() => false), 10_000);
  assert.equal(await waited(() => false, AbortSignal.abort()), 0);
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
