import assert from 'node:assert/strict';
import { test } from 'node:test';
import { measureLoopDelay } from '../../src/kernel/loop-delay.ts';
import type { LoopDelayMs } from '../../src/model/metrics.ts';
import { until } from '../support/until.ts';

/** Waits for a measurement that is like this: whatever else this machine does makes others different. */
async function measured(what: string, take: () => LoopDelayMs | undefined, isSo: (delay: LoopDelayMs) => boolean) {
  await until(what, () => {
    const delay = take();
    return delay !== undefined && isSo(delay);
  });
}

test('an idle event loop has no delay', async () => {
  const take = measureLoopDelay(100);
  await measured('less than that', take, ({ min, mean, p50, p90, p99, max }) => {
    const values = [min, p50, p90, p99, max];
    for (const [index, value] of values.entries()) assert.ok(value >= (values[index - 1] ?? 0), values.join());
    return mean < 50 && max < 50;
  });
});

test('the delay of a blocked event loop is measured', async () => {
  const take = measureLoopDelay(10);
  const cell = new Int32Array(new SharedArrayBuffer(4));
  const takeHeldUp = () => {
    Atomics.wait(cell, 0, 0, 100);
    return take();
  };
  // Between two measurements there is a turn, or part of one, in which it is held up.
  await measured('it is seen', takeHeldUp, ({ min }) => min >= 90);
});
