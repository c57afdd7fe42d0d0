import { systemClock } from '../../../util/system-clock.ts';
import { runWorker } from './run-worker.ts';

runWorker(systemClock);
