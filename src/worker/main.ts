import { systemClock } from '../host/system-clock.ts';
import { runWorker } from './run-worker.ts';

runWorker(systemClock);
