import type { Clock } from '../util/clock.ts';

/**
 * Tells when this was called, in milliseconds since 1970, by the wall clock as it is set when that is asked: where a
 * machine begins with a wrong one, what is as old as the program is still not said to be of 1970.
 */
export function startTime(clock: Clock): () => number {
  const startedMs = clock.now();
  return () => Math.round(clock.wallNow() - (clock.now() - startedMs));
}
