import type { SyncMetrics } from '../../model/metrics.ts';
import type { SyncResult } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';

/** Remembers how the last sync of one address family ended, on the way of what is reported of it to the metrics. */
export function recordSyncs<M extends SyncMetrics>(
  metrics: M,
  clock: Clock,
): { metrics: M; last(): SyncResult | undefined } {
  let last: SyncResult | undefined;
  return {
    metrics: {
      ...metrics,
      syncDone: (sync) => {
        const { durationMs, err } = sync;
        last = { at: clock.wallNow(), durationMs, ...(err !== undefined && { err }) };
        metrics.syncDone(sync);
      },
    },
    last: () => last,
  };
}
