import type { Clock } from '../../src/util/clock.ts';
import { systemClock } from '../../src/util/system-clock.ts';

/** For it, deadlines of two seconds are two minutes: what must come may take its time on a busy machine. */
export const PATIENT: Clock = { ...systemClock, now: () => systemClock.now() / 60 };
