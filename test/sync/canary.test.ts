import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Canary } from '../../src/sync/canary.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

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
  const settle = async () => {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  };
  const answer = async (areThere: boolean) => {
    looks.shift()?.resolve(areThere);
    await settle();
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
      await settle();
    };
  };
  return { clock, calls, looks, canary, settle, answer, change };
}

describe('the canary', () => {
  test('looks again and again, from the first change on', async () => {
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

  test('reports when they are gone, and when nobody knows', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    h.clock.advance(2_000);
    await h.answer(false);
    h.clock.advance(2_000);
    h.looks.shift()?.reject(new Error('no answer'));
    await h.settle();
    assert.deepEqual(h.calls, ['look', 'lost', 'look', 'lost']);
    h.clock.advance(2_000);
    assert.equal(h.calls.at(-1), 'look', 'it goes on');
  });

  test('does not look while rules change, and makes up for it', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    const done = h.change();
    await h.settle();
    h.clock.advance(60_000);
    assert.deepEqual(h.calls, ['change']);
    await done();
    assert.deepEqual(h.calls, ['change', 'look']);
  });

  test('delays a change until its look has ended', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    h.clock.advance(2_000);
    const done = h.change();
    await h.settle();
    assert.deepEqual(h.calls, ['look']);
    await h.answer(true);
    assert.deepEqual(h.calls, ['look', 'change']);
    await done();
  });

  test('looks on when changes fail', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    await assert.rejects(h.canary.during(() => Promise.reject(new Error('refused'))));
    h.clock.advance(2_000);
    assert.deepEqual(h.calls, ['look']);
  });

  test('looks no more once it is stopped', async () => {
    const h = harness();
    await h.canary.during(async () => {});
    h.clock.advance(2_000);
    let isStopped = false;
    const stopped = h.canary.stop().then(() => {
      isStopped = true;
    });
    await h.settle();
    assert.equal(isStopped, false);
    await h.answer(true);
    await stopped;
    h.clock.advance(60_000);
    assert.equal(h.clock.pendingTimers, 0);
    assert.deepEqual(h.calls, ['look']);
  });
});
