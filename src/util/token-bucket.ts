import type { Clock } from './clock.ts';
import { sleep } from './sleep.ts';

/** Lets `burst` requests pass at once and `ratePerSecond` on the average, in the order of asking (client-go's `flowcontrol`). */
export class TokenBucket {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #toleranceMs: number;
  /** When the bucket would be full again if nobody asked any more. */
  #fullAt = 0;

  constructor({
    clock,
    ratePerSecond,
    burst,
  }: {
    readonly clock: Clock;
    readonly ratePerSecond: number;
    readonly burst: number;
  }) {
    this.#clock = clock;
    this.#intervalMs = 1_000 / ratePerSecond;
    this.#toleranceMs = (Math.max(1, burst) - 1) * this.#intervalMs;
  }

  /** Resolves when a request may be sent, or early when aborted. */
  async take(signal: AbortSignal): Promise<void> {
    const now = this.#clock.now();
    const fullAt = Math.max(this.#fullAt, now);
    this.#fullAt = fullAt + this.#intervalMs;
    await sleep(fullAt - this.#toleranceMs - now, this.#clock, signal);
  }
}
