/** Of all dials of a Service port, so that a slow cluster is not dialled twice. */
const SHARE = 0.05;

/** Hedges that may come at once, after a time without any. */
const MAX_CREDIT = 10;

/** How many second dials one Service port may begin. */
export class HedgeBudget {
  /** The first client of a Service may have one. */
  #credit = 1;

  /** A connection is dialled for. */
  dialled(): void {
    this.#credit = Math.min(MAX_CREDIT, this.#credit + SHARE);
  }

  tryTake(): boolean {
    if (this.#credit < 1) return false;
    this.#credit--;
    return true;
  }
}
