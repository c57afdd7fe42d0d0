import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { BoundedFrequencyRunner, type RunCause } from '../../src/sync/bounded-frequency-runner.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { microtasks } from '../support/until.ts';

/** Its timers fire a little early, as those of Node may. */
class HastyClock extends ManualClock {
  override after(delayMs: number, callback: () => void) {
    return super.after(delayMs > 1 ? delayMs - 0.5 : delayMs, callback);
  }
}

function harness(options: { min?: number; max?: number; burst?: number; clock?: ManualClock } = {}) {
  const clock = options.clock ?? new ManualClock();
  const runs: { at: number; cause: RunCause }[] = [];
  const state = { succeed: true, gate: undefined as Promise<void> | undefined };
  const runner = new BoundedFrequencyRunner({
    clock,
    minIntervalMs: options.min ?? 1_000,
    maxIntervalMs: options.max ?? 30_000,
    burst: options.burst ?? 2,
    run: async (cause) => {
      runs.push({ at: clock.now(), cause });
      await state.gate;
      return state.succeed;
    },
  });
  const advance = async (ms: number, step = 10) => {
    clock.advance(0);
    await microtasks();
    for (let done = 0; done < ms; done += step) {
      clock.advance(step);
      await microtasks();
    }
  };
  return { clock, runs, runner, state, advance, times: () => runs.map((run) => run.at) };
}

describe('a bounded-frequency runner', () => {
  test('runs the first request on a quiet node at once', async () => {
    const h = harness();
    h.runner.request();
    await h.advance(10);
    assert.deepEqual(h.runs, [{ at: 0, cause: 'change' }]);
  });

  test('bounds a storm of requests to the burst and then one run per minimal interval', async () => {
    const h = harness();
    for (let i = 0; i < 490; i++) {
      h.runner.request();
      await h.advance(10);
    }
    // 4.9 s: two at once, then one a second.
    assert.equal(h.runs.length, 6);
    const gaps = h.times().map((at, i, all) => at - (all[i - 1] ?? 0));
    assert.ok(gaps.slice(2).every((gap) => gap >= 980));
  });

  test('keeps that bound when timers fire early', async () => {
    const h = harness({ clock: new HastyClock() });
    for (let i = 0; i < 490; i++) {
      h.runner.request();
      await h.advance(10);
    }
    assert.equal(h.runs.length, 6);
  });

  test('joins requests that come during a run into one later run, and never overlaps', async () => {
    const h = harness();
    let open = () => {};
    h.state.gate = new Promise((resolve) => {
      open = resolve;
    });
    h.runner.request();
    await h.advance(10);
    for (let i = 0; i < 5; i++) h.runner.request();
    await h.advance(5_000);
    assert.equal(h.runs.length, 1);
    open();
    h.state.gate = undefined;
    await h.advance(100);
    assert.equal(h.runs.length, 2);
  });

  test('runs once per maximal interval without a request', async () => {
    const h = harness();
    h.runner.request();
    await h.advance(65_000, 100);
    assert.deepEqual(
      h.runs.map((run) => run.cause),
      ['change', 'period', 'period'],
    );
  });

  test('repeats a failed run with growing waits and returns to normal', async () => {
    const h = harness({ min: 0 });
    h.state.succeed = false;
    h.runner.request();
    await h.advance(8_000);
    assert.deepEqual(h.times(), [0, 1_000, 3_000, 7_000]);
    h.state.succeed = true;
    await h.advance(8_000);
    assert.equal(h.runs.length, 5);
    h.runner.request();
    await h.advance(10);
    assert.equal(h.runs.at(-1)?.cause, 'change');
  });

  test('requests do not shorten the wait after a failed run', async () => {
    const h = harness({ min: 0 });
    h.state.succeed = false;
    h.runner.request();
    for (let i = 0; i < 90; i++) {
      await h.advance(10);
      h.runner.request();
    }
    assert.equal(h.runs.length, 1);
  });

  test('runs a request at once when a long wait after failures has begun more than 2 s before', async () => {
    const h = harness({ min: 0, max: 600_000 });
    h.state.succeed = false;
    h.runner.request();
    await h.advance(100_000, 100);
    assert.equal(h.times().at(-1), 91_000);
    h.runner.request();
    await h.advance(10);
    assert.equal(h.times().at(-1), 100_000);
  });

  test('a flood of requests starts a failing run only every 2 s', async () => {
    const h = harness({ min: 0, max: 600_000 });
    h.state.succeed = false;
    for (let i = 0; i < 6_000; i++) {
      h.runner.request();
      await h.advance(10);
    }
    assert.deepEqual(h.times().slice(0, 4), [0, 1_000, 3_000, 5_000]);
    assert.equal(h.runs.length, 31);
  });

  test('retries alone at most 30 s after a failed run, however long the maximal interval', async () => {
    const h = harness({ min: 0, max: 600_000 });
    h.state.succeed = false;
    h.runner.request();
    await h.advance(121_000, 100);
    assert.deepEqual(h.times(), [0, 1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000, 121_000]);
  });

  test('starts nothing after stop, and stop waits for the current run', async () => {
    const h = harness();
    let open = () => {};
    h.state.gate = new Promise((resolve) => {
      open = resolve;
    });
    h.runner.request();
    await h.advance(10);
    let stopped = false;
    const stopping = h.runner.stop().then(() => {
      stopped = true;
    });
    await microtasks();
    assert.equal(stopped, false);
    open();
    await stopping;
    h.runner.request();
    await h.advance(60_000, 1_000);
    assert.equal(h.runs.length, 1);
  });
});
