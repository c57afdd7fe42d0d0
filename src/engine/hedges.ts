/** Of all dials of a Service port, so that a slow cluster is not dialled twice. */
const SHARE = 0.05;

/** Hedges that may come at once, after a time without any. */
const MAX_CREDIT = 10;

/** When connections of one Service port may be dialled for a second time while the first endpoint is silent. */
export class Hedges {
  readonly #afterMs: number;
  /** The first client of a Service may have one. */
  #credit = 1;

  /** `afterMs`: 0 for none. */
  constructor(afterMs: number) {
    this.#afterMs = afterMs;
  }

  /** After which part of the time of this try of a connection a second endpoint may be dialled; 0: never. */
  quietMs(tries: number, timeoutMs: number, hasAffinity: boolean): number {
    if (this.#afterMs === 0 || tries > 0 || this.#afterMs >= timeoutMs) return 0;
    this.#credit = Math.min(MAX_CREDIT, this.#credit + SHARE);
    // A slow endpoint must not cost a client its affinity.
    return hasAffinity ? 0 : this.#afterMs;
  }

  tryTake(): boolean {
    if (this.#credit < 1) return false;
    this.#credit--;
    return true;
  }
}
