import type { Clock } from './clock.ts';

/** The only place that reads the machine's time or arms its timers. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  after: (delayMs, callback) => {
    const handle = setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
};

/** CLOCK_MONOTONIC, which all processes of this machine share: in milliseconds. */
export function machineUptimeMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
