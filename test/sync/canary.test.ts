import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Canary } from '../../src/sync/canary.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { microtasks } from '../support/until.ts';

function harness() {
  const clock = new ManualClock();
  const calls: string[] = [];
  const looks: PromiseWithResolvers<boolean>[] = [];
  const canary = new Canary({
    clock,
    intervalMs: 2_000,
    look: () => {
      calls.push('look');
      const look = Promise.withResolvers<boolean>();
      looks.push(look);
      return look.promise;
    },
    onLost: () => calls.push('lost'),
  });
  const answer = async (areThere: boolean) => {
    looks.shift()?.resolve(areThere);
    await microtasks();
  };
  /** A change that goes on until the returned function is called. */
  const change = () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const done = canary.during(() => {
      calls.push('change');
      return promise;
    });
    return async () => {
      resolve();
      await done;
      await microtasks();
    };
  };
  return { clock, calls, looks, canary, answer, change };
}

describe('the canary', () => {
  test('checks at intervals, from the first change on', async () => {
    const h = harness();
    h.clock.advance(10_000);
    assert.deepEqual(h.calls, []);
    await h.canary.during(async () => {});
    h.clock.advance(1_999);
    assert.deepEqual(h.calls, []);
    for (let look = 1; look <= 3; look++) {
      h.clock.advance(2_000);
      assert.equal(h.calls.length, look);
      await h.answer(true);
    }
  });

  test('reports when rules are gone, but not when a look fails, and goes on', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    h.clock.advance(2_000);
    h.looks.shift()?.reject(new Error('no answer'));
    await microtasks();
    assert.deepEqual(h.calls, ['look']);
    h.clock.advance(2_000);
    await h.answer(false);
    assert.deepEqual(h.calls, ['look', 'look', 'lost']);
    h.clock.advance(2_000);
    assert.equal(h.calls.at(-1), 'look');
  });

  test('does not check while rules change, but at once afterwards', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    const done = h.change();
    await microtasks();
    h.clock.advance(60_000);
    assert.deepEqual(h.calls, ['change']);
    await done();
    assert.deepEqual(h.calls, ['change', 'look']);
  });

  test('delays a change until its check has ended', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    h.clock.advance(2_000);
    const done = h.change();
    await microtasks();
    assert.deepEqual(h.calls, ['look']);
    await h.answer(true);
    assert.deepEqual(h.calls, ['look', 'change']);
    await done();
  });

  test('goes on when a change fails', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    await assert.rejects(h.canary.during(() => Promise.reject(new Error('refused'))));
    h.clock.advance(2_000);
    assert.deepEqual(h.calls, ['look']);
  });

  test('stops after the check that is under way', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    h.clock.advance(2_000);
    let isStopped = false;
    const stopped = h.canary.stop().then(() => {
      isStopped = true;
    });
    await microtasks();
    assert.equal(isStopped, false);
    await h.answer(true);
    await stopped;
    h.clock.advance(60_000);
    assert.equal(h.clock.pendingTimers, 0);
    assert.deepEqual(h.calls, ['look']);
  });
});
