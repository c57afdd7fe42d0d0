/** How late an event loop was, in milliseconds, over a number of looks. */
export interface LoopDelayMs {
  readonly min: number;
  readonly mean: number;
  readonly stddev: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}
