/** Enough for every try of a connection to be told; a flood is told of ten times a second. */
const BURST = 64;
const PER_SECOND = 10;

/**
 * How often one Service port may tell the main thread of something. Counters count everything; what goes across is for
 * the log, and a message per refused client would let a flood of clients drown the main thread.
 */
export class ReportBudget {
  #left = BURST;
  #filledMs = 0;

  /** Whether one more may be told. */
  take(nowMs: number): boolean {
    this.#left = Math.min(BURST, this.#left + ((nowMs - this.#filledMs) * PER_SECOND) / 1000);
    this.#filledMs = nowMs;
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}
