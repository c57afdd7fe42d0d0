import { readFileSync, rmSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { runWorker } from '../../../../src/engine/fast/worker/engine.ts';
import { systemClock } from '../../../../src/util/system-clock.ts';

/*
 * A worker that once does what the file KUP_TEST_ORDER.INDEX says: `throw`, `hang`, `hoard` memory until there is none,
 * or find Service port 1 `busy`. It looks for the file whenever its loop reads the clock, so in every turn.
 */
const order = `${process.env['KUP_TEST_ORDER']}.${workerData.index}`;

runWorker({
  ...systemClock,
  now() {
    const what = read();
    if (what !== undefined) {
      rmSync(order);
      if (what === 'busy') parentPort?.postMessage([{ kind: 'busy', port: 1 }]);
      if (what === 'throw') throw new Error('ordered to throw');
      if (what === 'hang') for (;;);
      // In large pieces: one that collects garbage for seconds counts as stuck.
      if (what === 'hoard') for (const hoard: number[][] = []; ; ) hoard.push(new Array(1 << 20).fill(hoard.length));
    }
    return systemClock.now();
  },
});

function read(): string | undefined {
  try {
    return readFileSync(order, 'utf8');
  } catch {
    return undefined;
  }
}
