import type { Clock } from '../contracts/clock.ts';
import type { SyncHealth } from '../contracts/metrics.ts';
import type { Instant } from './timestamp.ts';

export interface HealthReport {
  readonly healthy: boolean;
  /** `undefined` until the first time. */
  readonly lastUpdated: Instant | undefined;
  readonly now: Instant;
}

/**
 * Whether rules keep up with what is wanted, by the measure of kube-proxy's `proxierHealthServer` (`pkg/proxy/healthcheck/
 * proxier_health.go`): healthy while nothing waits, or while the oldest change that waits does so for less than the
 * timeout. Counting from the oldest, as since 1.28: before, a steady stream of changes kept a stuck proxy healthy.
 * Healthy from the start, too: a probe during the first sync must not have the pod restarted.
 */
export class Health implements SyncHealth {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  #oldestPendingMs: number | undefined;
  #lastUpdated: Instant | undefined;

  /** `timeoutMs`: upstream's is twice the sync period. */
  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  queuedUpdate(): void {
    this.#oldestPendingMs ??= this.#clock.now();
  }

  updated(): void {
    this.#oldestPendingMs = undefined;
    this.#lastUpdated = this.#now();
  }

  report(): HealthReport {
    const now = this.#now();
    const pending = this.#oldestPendingMs;
    const healthy = pending === undefined || now.monotonicMs - pending < this.#timeoutMs;
    return { healthy, lastUpdated: this.#lastUpdated, now };
  }

  #now(): Instant {
    return { wallMs: this.#clock.wallNow(), monotonicMs: this.#clock.now() };
  }
}
