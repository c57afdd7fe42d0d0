import '../support/private-netns.ts';
import { createFastDataPlane } from '../../src/engine/fast/create.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { WORKER_SCRIPT } from '../support/worker-script.ts';
import { dataPlaneCompliance } from './data-plane.ts';

// Every other client is dialled for by another worker, and open connections move whenever they can. UDP clients are
// spread over both workers by the kernel.
dataPlaneCompliance('the fast engine with two workers for each Service port', ({ options, ...setup }) =>
  createFastDataPlane({
    ...setup,
    options: { ...options, workers: 2 },
    clock: systemClock,
    log: new RecordingLog(),
    entry: WORKER_SCRIPT,
    spread: 'always',
  }),
);
