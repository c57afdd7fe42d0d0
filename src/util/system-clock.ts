import type { Clock } from './clock.ts';

/** The only place that reads the machine's time or arms its timers. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  after: (delayMs, callback) => {
    if (delayMs <= 0) {
      // A timer takes a millisecond at least, and work in slices of five would wait for a sixth of its time.
      const immediate = setImmediate(callback);
      return { cancel: () => clearImmediate(immediate) };
    }
    const handle = setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
};

/** CLOCK_MONOTONIC, which all processes of this machine share: in milliseconds. */
export function machineUptimeMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/**
 * A function that gives the time of this call in milliseconds since 1970, by the wall clock as it is set at the time of
 * asking. Where a machine starts with a wrong clock, the start of the program does not stay in 1970.
 */
export function startTime(clock: Clock): () => number {
  const startedMs = clock.now();
  return () => Math.round(clock.wallNow() - (clock.now() - startedMs));
}
