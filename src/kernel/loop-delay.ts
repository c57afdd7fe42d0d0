import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { LoopDelayMs } from '../model/metrics.ts';

/**
 * Measures how late this thread's event loop is, once per `resolutionMs`; each measurement wakes the process up. The
 * returned function summarizes the measurements since its last call; `undefined` when there were none.
 */
export function measureLoopDelay(resolutionMs: number): () => LoopDelayMs | undefined {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  histogram.enable();
  // The histogram holds the time between two measurements.
  const late = (ns: number): number => Math.max(0, ns / 1e6 - resolutionMs);
  return () => {
    if (histogram.count === 0) return undefined;
    const delay: LoopDelayMs = {
      min: late(histogram.min),
      mean: late(histogram.mean),
      stddev: histogram.stddev / 1e6,
      p50: late(histogram.percentile(50)),
      p90: late(histogram.percentile(90)),
      p99: late(histogram.percentile(99)),
      max: late(histogram.max),
    };
    histogram.reset();
    return delay;
  };
}
