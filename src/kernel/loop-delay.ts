import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { LoopDelayMs } from '../model/metrics.ts';

/**
 * Looks so often how late this thread's event loop is; each look wakes the process up. The returned function tells of
 * the looks since its last call, and nothing when there was none.
 */
export function measureLoopDelay(resolutionMs: number): () => LoopDelayMs | undefined {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  histogram.enable();
  // What it counts is the time between two looks.
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
