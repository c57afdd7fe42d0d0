import { existsSync, readFileSync, rmSync } from 'node:fs';
import { workerData } from 'node:worker_threads';
import { systemClock } from '../../../../src/host/system-clock.ts';
import { runWorker } from '../../../../src/worker/run-worker.ts';

/*
 * A worker that does what the file in KUP_TEST_ORDER says, once: `INDEX throw` or `INDEX hang`. It looks whenever its loop
 * reads the clock, that is in every turn.
 */
const order = process.env['KUP_TEST_ORDER'] ?? '';

runWorker({
  ...systemClock,
  now() {
    if (existsSync(order)) {
      const [index, what] = readFileSync(order, 'utf8').split(' ');
      if (Number(index) === workerData.index) {
        rmSync(order);
        if (what === 'throw') throw new Error('told to throw');
        if (what === 'hang') for (;;);
      }
    }
    return systemClock.now();
  },
});
