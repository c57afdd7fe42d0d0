import type { Clock, Timer } from '../util/clock.ts';
import { TokenBucket } from '../util/token-bucket.ts';
import { backoffMs } from '../util/wait.ts';

/** `change`: a run was requested; `period`: time for a routine check; `retry`: the last run failed. */
export type RunCause = 'change' | 'period' | 'retry';

interface BoundedFrequencyOptions {
  readonly clock: Clock;
  /** On average; 0: no limit. */
  readonly minIntervalMs: number;
  readonly maxIntervalMs: number;
  /** Runs that may follow each other at once after a quiet time. */
  readonly burst: number;
  /** Must not throw; resolves with whether it succeeded. Never called during a run. */
  readonly run: (cause: RunCause) => Promise<boolean>;
}

const FIRST_RETRY_MS = 1_000;
/** After failures, a request waits at most the first of these, and a retry without a request the second. */
const MAX_REQUEST_MS = 2_000;
const MAX_RETRY_MS = 30_000;

/**
 * Runs one function as often as requested within limits (upstream `pkg/util/async/bounded_frequency_runner.go`).
 * Requests during a run or the minimal interval share one later run. Unlike upstream, retries a failed run with growing
 * waits, and soon where somebody requests a run.
 */
export class BoundedFrequencyRunner {
  readonly #options: BoundedFrequencyOptions;
  readonly #bucket: TokenBucket;
  #lastRunEndedAt: number;
  #requested = false;
  #failures = 0;
  #stopped = false;
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;

  constructor(options: BoundedFrequencyOptions) {
    const { clock, burst, minIntervalMs } = options;
    this.#options = options;
    this.#bucket = new TokenBucket({ clock, burst, ratePerSecond: 1_000 / minIntervalMs });
    this.#lastRunEndedAt = clock.now();
  }

  /** The first request also starts the periodic runs. */
  request(): void {
    this.#requested = true;
    this.#arm();
  }

  /** Starts no further run; resolves when the current one has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#running;
  }

  resume(): void {
    this.#stopped = false;
    if (this.#timer !== undefined || this.#requested) this.#arm();
  }

  #arm(): void {
    if (this.#stopped || this.#running !== undefined) return;
    this.#timer?.cancel();
    const { clock } = this.#options;
    const { cause, dueMs } = this.#next();
    const waitMs = Math.max(this.#bucket.waitMs(), dueMs - (clock.now() - this.#lastRunEndedAt));
    this.#timer = clock.after(waitMs, () => {
      // A timer may fire a fraction of a millisecond early, before the token is there.
      if (this.#bucket.tryTake()) this.#running = this.#runOnce(cause);
      else this.#arm();
    });
  }

  /** `dueMs` counts from the end of the last run. */
  #next(): { readonly cause: RunCause; readonly dueMs: number } {
    const maxMs = this.#options.maxIntervalMs;
    if (this.#failures > 0) {
      const most = Math.min(maxMs, this.#requested ? MAX_REQUEST_MS : MAX_RETRY_MS);
      return { cause: 'retry', dueMs: backoffMs(this.#failures, { firstMs: FIRST_RETRY_MS, maxMs: most }) };
    }
    return this.#requested ? { cause: 'change', dueMs: 0 } : { cause: 'period', dueMs: maxMs };
  }

  async #runOnce(cause: RunCause): Promise<void> {
    const { clock, run } = this.#options;
    this.#requested = false;
    this.#failures = (await run(cause)) ? 0 : this.#failures + 1;
    this.#lastRunEndedAt = clock.now();
    this.#running = undefined;
    this.#arm();
  }
}
