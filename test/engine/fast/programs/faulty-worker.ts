import { readFileSync, rmSync } from 'node:fs';
import { workerData } from 'node:worker_threads';
import { runWorker } from '../../../../src/engine/fast/worker/engine.ts';
import { systemClock } from '../../../../src/util/system-clock.ts';

/*
 * A worker that does what the file KUP_TEST_ORDER.INDEX says, once: `throw` or `hang`. It looks whenever its loop reads the
 * clock, that is in every turn. Each worker has a file of its own, as another one's may go between two looks at it.
 */
const order = `${process.env['KUP_TEST_ORDER']}.${workerData.index}`;

runWorker({
  ...systemClock,
  now() {
    const what = read();
    if (what !== undefined) {
      rmSync(order);
      if (what === 'throw') throw new Error('told to throw');
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
