import type { Clock } from '../../util/clock.ts';

/** Rejects with `late` when `work` takes longer; it may go on, but nobody waits for it. */
export function bounded<T>(
  work: Promise<T>,
  { clock, ms, late }: { readonly clock: Clock; readonly ms: number; readonly late: string },
): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(ms, () => reject(new Error(late)));
    work.then(resolve, reject).finally(() => timer.cancel());
  });
}
