import { systemClock } from '../../../util/system-clock.ts';
import { runWorker } from './engine.ts';

runWorker(systemClock);
