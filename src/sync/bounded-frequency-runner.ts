import type { Clock, Timer } from '../util/clock.ts';

/** `change`: somebody asked; `period`: the time for a routine check has come; `retry`: the last run failed. */
export type RunCause = 'change' | 'period' | 'retry';

export interface BoundedFrequencyOptions {
  readonly clock: Clock;
  /** Between runs in the long term. 0 does not bound them. */
  readonly minIntervalMs: number;
  /** A run takes place at least this often. */
  readonly maxIntervalMs: number;
  /** Runs that may follow each other at once after a quiet time. */
  readonly burst: number;
  /** Must not throw; resolves with whether it succeeded. Never called while a run is going on. */
  readonly run: (cause: RunCause) => Promise<boolean>;
}

/** The first wait after a failed run; doubled for each further one, up to the maximal interval. */
const FIRST_RETRY_MS = 1_000;

/**
 * Runs one function as often as asked, yet bounded both ways (upstream `pkg/util/async/bounded_frequency_runner.go`):
 * requests during a run or inside the minimal interval fold into one later run, and the first request on a quiet node
 * runs at once. Unlike upstream, a failed run is repeated with growing waits instead of waiting for the next period.
 */
export class BoundedFrequencyRunner {
  readonly #options: BoundedFrequencyOptions;
  #tokens: number;
  #tokensAt: number;
  #lastRunEndedAt: number;
  #requested = false;
  #failures = 0;
  #stopped = false;
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;

  constructor(options: BoundedFrequencyOptions) {
    this.#options = options;
    this.#tokens = options.burst;
    this.#tokensAt = options.clock.now();
    this.#lastRunEndedAt = options.clock.now();
  }

  /** Asks for a run. The first request also starts the periodic ones. */
  request(): void {
    this.#requested = true;
    this.#arm();
  }

  /** No run starts any more; resolves when the one that is going on has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#running;
  }

  /** Runs as before, after {@link stop}. */
  resume(): void {
    this.#stopped = false;
    // Periodic runs are due only if there has been a first request.
    if (this.#timer !== undefined || this.#requested) this.#arm();
  }

  #arm(): void {
    if (this.#stopped || this.#running !== undefined) return;
    this.#timer?.cancel();
    const now = this.#options.clock.now();
    const { at, cause } = this.#next(now);
    this.#timer = this.#options.clock.after(Math.max(0, at - now), () => {
      this.#running = this.#runOnce(cause);
    });
  }

  #next(now: number): { at: number; cause: RunCause } {
    const allowedAt = this.#tokenAt(now);
    if (this.#requested && this.#failures === 0) return { at: allowedAt, cause: 'change' };
    if (this.#failures > 0) {
      const wait = Math.min(FIRST_RETRY_MS * 2 ** (this.#failures - 1), this.#options.maxIntervalMs);
      return { at: Math.max(allowedAt, this.#lastRunEndedAt + wait), cause: 'retry' };
    }
    return { at: Math.max(allowedAt, this.#lastRunEndedAt + this.#options.maxIntervalMs), cause: 'period' };
  }

  async #runOnce(cause: RunCause): Promise<void> {
    const { clock, run } = this.#options;
    this.#requested = false;
    this.#refill(clock.now());
    this.#tokens = Math.max(0, this.#tokens - 1);
    const succeeded = await run(cause);
    this.#failures = succeeded ? 0 : this.#failures + 1;
    this.#lastRunEndedAt = clock.now();
    this.#running = undefined;
    this.#arm();
  }

  #tokenAt(now: number): number {
    this.#refill(now);
    return this.#tokens >= 1 ? now : now + (1 - this.#tokens) * this.#options.minIntervalMs;
  }

  #refill(now: number): void {
    const { minIntervalMs, burst } = this.#options;
    const gained = minIntervalMs === 0 ? burst : (now - this.#tokensAt) / minIntervalMs;
    this.#tokens = Math.min(burst, this.#tokens + gained);
    this.#tokensAt = now;
  }
}
