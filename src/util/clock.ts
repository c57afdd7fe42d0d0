/** Time as an argument, so that tests decide when it passes. */
export interface Clock {
  /** Monotonic milliseconds: for durations and deadlines; never jumps with the wall clock. */
  now(): number;
  /** Wall-clock milliseconds since 1970: only for showing to people and machines. */
  wallNow(): number;
  /** Runs `callback` once after `delayMs`. Disposing cancels; disposing twice is allowed. */
  after(delayMs: number, callback: () => void): Timer;
}

/**
 * Time that is left, for showing: whole milliseconds, not below 0. Clocks read fractions, whose sums are off by a
 * rounding error: 60 s of silence would be 60000.00000000001 ms.
 */
export function wholeMsLeft(ms: number): number {
  return Math.max(0, Math.round(ms));
}

/** By a clock that shows `nowMs`: a time that has passed, which another process has told in milliseconds since 1970. */
export function pastMs(at: number, { nowMs, clock }: { readonly nowMs: number; readonly clock: Clock }): number {
  return nowMs - Math.max(0, clock.wallNow() - at);
}

export interface Timer {
  cancel(): void;
}

/** A uniform draw from [0, 1), as `Math.random`. */
export type Random = () => number;
