import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { progressText, type StartProgress, showProgress } from '../../../src/operate/log/start-progress.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

const START: StartProgress = {
  api: { server: '192.0.2.1:6443', hasAnswered: false },
  isSynced: false,
  pendingServices: 0,
  wantedPorts: 0,
  openListeners: 0,
  isReady: false,
};
const text = (changes: Partial<StartProgress>, elapsedMs = 12_345) => progressText({ ...START, ...changes }, elapsedMs);
const ANSWERED = { server: '192.0.2.1:6443', hasAnswered: true };

describe('the text of the progress', () => {
  test('waiting for the API server', () => {
    assert.equal(text({}), 'Waiting for the API server 192.0.2.1:6443 (12 s)');
    assert.equal(
      text({ api: { server: 'a\x1b[31m', hasAnswered: false } }),
      'Waiting for the API server a\\u001b[31m (12 s)',
    );
  });

  test('listing', () => {
    assert.equal(text({ api: ANSWERED }), 'Listing Services from 192.0.2.1:6443 (12 s)');
    assert.equal(
      text({ api: ANSWERED, pendingServices: 3_200 }),
      'Listing Services from 192.0.2.1:6443, 3,200 Services so far (12 s)',
    );
    assert.equal(text({ api: undefined, pendingServices: 1 }), 'Reading manifests, 1 Service so far (12 s)');
  });

  test('opening listeners, of all that are known', () => {
    assert.equal(
      text({ isSynced: true, pendingServices: 6_000, wantedPorts: 4_000, openListeners: 3_200 }),
      'Opening listeners: 3,200 of 10,000 (12 s)',
    );
  });

  test('installing rules', () => {
    assert.equal(
      text({ isSynced: true, wantedPorts: 1_234_567, openListeners: 1_234_567 }),
      'Installing the rules of 1,234,567 Service ports (12 s)',
    );
  });

  test('ready', () => {
    assert.equal(text({ isSynced: true, isReady: true, wantedPorts: 1 }, 3_449), 'Ready: 1 Service port in 3.4 s');
  });
});

/** A start whose state the test changes. */
function start({ isTTY = true, isGone = false, format = 'auto' as 'auto' | 'text' | 'json', TERM = 'xterm' } = {}) {
  const clock = new ManualClock();
  const shown: string[] = [];
  const written: string[] = [];
  const logged: string[] = [];
  const state = { ...START };
  const stopped = new AbortController();
  const line = {
    isTTY,
    show: (text: string) => void shown.push(text),
    clear: () => void shown.push(''),
    write: (text: string) => {
      if (isGone) throw new Error('EIO');
      written.push(text);
    },
  };
  const log = { info: (message: string) => void logged.push(message) };
  showProgress({ line, format, env: { TERM }, log, clock, progress: () => state, signal: stopped.signal });
  return { clock, shown, written, logged, state, stopped };
}

describe('progress of the start', () => {
  test('is shown until the end, and leaves one line', () => {
    const { clock, shown, written, logged, state } = start();
    clock.advance(1_000);
    assert.equal(shown.at(-1), 'Waiting for the API server 192.0.2.1:6443 (1 s)');
    Object.assign(state, { api: ANSWERED, pendingServices: 2 });
    clock.advance(100);
    assert.equal(shown.at(-1), 'Listing Services from 192.0.2.1:6443, 2 Services so far (1 s)');
    Object.assign(state, { isReady: true, wantedPorts: 4 });
    clock.advance(100);
    assert.deepEqual(written, ['Ready: 4 Service ports in 1.2 s\n']);
    assert.deepEqual(logged, []);
    assert.equal(clock.pendingTimers, 0);
  });

  test('ends silently when the terminal is gone', () => {
    const { clock, written, state } = start({ isGone: true });
    state.isReady = true;
    clock.advance(1_000);
    assert.deepEqual(written, []);
    assert.equal(clock.pendingTimers, 0);
  });

  test('of a short start is one line at its end', () => {
    const { clock, shown, written, state } = start();
    clock.advance(200);
    state.isReady = true;
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
    test(`is a line of the log at its end ${where}`, () => {
      const { clock, shown, written, logged, state } = start(options);
      clock.advance(1_000);
      assert.deepEqual(logged, []);
      Object.assign(state, { isReady: true, wantedPorts: 1 });
      clock.advance(1_000);
      assert.deepEqual(logged, ['Ready: 1 Service port in 1.1 s']);
      assert.deepEqual([...shown, ...written], []);
      assert.equal(clock.pendingTimers, 0);
    });
  }
});
