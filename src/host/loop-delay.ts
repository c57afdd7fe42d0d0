import { monitorEventLoopDelay } from 'node:perf_hooks';

/** Each look wakes the process up: often enough to see what a person would notice. */
const RESOLUTION_MS = 50;

export interface LoopDelayMs {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** Measures how late this thread's event loop is. The returned function tells of the time since its last call. */
export function measureLoopDelay(): () => LoopDelayMs {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  // What it counts is the time between two looks.
  const late = (ns: number): number => Math.max(0, ns / 1e6 - RESOLUTION_MS);
  return () => {
    const [p50, p99, max] =
      histogram.count === 0 ? [0, 0, 0] : [histogram.percentile(50), histogram.percentile(99), histogram.max];
    histogram.reset();
    return { p50: late(p50), p99: late(p99), max: late(max) };
  };
}
