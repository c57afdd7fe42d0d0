import '../support/private-netns.ts';
import { createFastDataPlane } from '../../src/engine/fast/create.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { WORKER_SCRIPT } from '../support/worker-script.ts';
import { dataPlaneCompliance } from './data-plane.ts';

dataPlaneCompliance('the fast engine', ({ options, ...setup }) =>
  createFastDataPlane({
    ...setup,
    options: { ...options, workers: 2 },
    clock: systemClock,
    log: new RecordingLog(),
    entry: WORKER_SCRIPT,
  }),
);
