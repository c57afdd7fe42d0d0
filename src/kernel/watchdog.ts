/** Node fires timers of more than 2^31 ms, for which there are watchdogs, at once. */
const MAX_PERIOD_MS = 60 * 60 * 1000;

export interface WatchedProcess {
  readonly pid: number;
  /** Its environment is that of the first process of the service, and still names that one. */
  readonly isSuccessor: boolean;
}

/**
 * How often systemd's watchdog is to hear from this process, in milliseconds: two signs of life may be late or lost before
 * it acts. `undefined` when it does not wait for them, or for those of another process (sd_watchdog_enabled(3)).
 */
export function watchdogPeriodMs(env: NodeJS.ProcessEnv, { pid, isSuccessor }: WatchedProcess): number | undefined {
  const { WATCHDOG_USEC: timeoutUs = '', WATCHDOG_PID: watched = '' } = env;
  if (!/^[1-9]\d*$/.test(timeoutUs)) return undefined;
  if (watched !== '' && watched !== String(pid) && !isSuccessor) return undefined;
  return Math.min(Number(timeoutUs) / 1000 / 3, MAX_PERIOD_MS);
}
