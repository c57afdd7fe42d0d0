import { readFileSync, rmSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { runWorker } from '../../../../src/engine/fast/worker/engine.ts';
import { systemClock } from '../../../../src/util/system-clock.ts';

/*
 * A worker that once does what the file KUP_TEST_ORDER.INDEX says: `throw`, `hang`, or find Service port 1 `busy`. It
 * looks for the file whenever its loop reads the clock, so in every turn.
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
