import type { Clock } from './clock.ts';

/** Resolves after `ms`, or at once when there is nothing to wait for or when aborted: who sleeps asks the signal afterwards. */
export function sleep(ms: number, clock: Clock, signal: AbortSignal): Promise<void> {
  if (signal.aborted || ms <= 0) return Promise.resolve();
  return new Promise((resolve) => {
    const wake = () => {
      timer.cancel();
      signal.removeEventListener('abort', wake);
      resolve();
    };
    const timer = clock.after(ms, wake);
    signal.addEventListener('abort', wake);
  });
}
