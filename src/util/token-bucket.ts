import type { Clock } from './clock.ts';
import { sleep } from './wait.ts';

/** Accepts `burst` requests at once and `ratePerSecond` on average, in order (client-go's `flowcontrol`). */
export class TokenBucket {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #toleranceMs: number;
  /** When the bucket would be full again without further requests. */
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

  /** Whether a request may be sent now; never waits. */
  tryTake(now = this.#clock.now()): boolean {
    if (this.waitMs(now) > 0) return false;
    this.#fullAt = Math.max(this.#fullAt, now) + this.#intervalMs;
    return true;
  }

  /** How long until {@link tryTake} succeeds. */
  waitMs(now = this.#clock.now()): number {
    return Math.max(0, Math.max(this.#fullAt, now) - this.#toleranceMs - now);
  }
}
