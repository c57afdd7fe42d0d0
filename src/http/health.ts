import type { IpFamily } from '../model/address.ts';
import type { SyncHealth } from '../model/metrics.ts';
import type { Clock } from '../util/clock.ts';
import type { Instant } from '../util/timestamp.ts';

export interface HealthReport {
  /** The rules of every address family keep up; nothing else counts. */
  readonly healthy: boolean;
  /** Of the family that was updated last, or of the first one that is stuck; `undefined` until then. */
  readonly lastUpdated: Instant | undefined;
  readonly now: Instant;
}

interface FamilyHealth {
  oldestQueuedMs: number | undefined;
  /** Of those that are being installed. */
  oldestBegunMs: number | undefined;
  lastUpdated: Instant | undefined;
}

/**
 * Whether the rules keep up with the cluster, by the measure of kube-proxy's `ProxyHealthServer`
 * (`pkg/proxy/healthcheck/proxy_health.go`): healthy while no change has waited for the timeout. The oldest change
 * counts, as since 1.28: before, a steady stream of changes kept a stuck proxy healthy. Healthy from the start, so that
 * no probe during the first sync restarts the pod. Unlike upstream's, a first sync longer than the timeout counts, and
 * a change that comes during a sync keeps waiting when that one ends.
 */
export class Health {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #families = new Map<IpFamily, FamilyHealth>();

  /** `timeoutMs`: upstream's is twice the sync period. */
  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** For the one loop that syncs the rules of this family. */
  of(family: IpFamily): SyncHealth {
    const state: FamilyHealth = { oldestQueuedMs: undefined, oldestBegunMs: undefined, lastUpdated: undefined };
    this.#families.set(family, state);
    return {
      queuedUpdate: () => {
        state.oldestQueuedMs ??= this.#clock.now();
      },
      syncBegins: () => {
        state.oldestBegunMs ??= state.oldestQueuedMs;
        state.oldestQueuedMs = undefined;
      },
      updated: () => {
        state.oldestBegunMs = undefined;
        state.lastUpdated = this.#now();
      },
    };
  }

  report(): HealthReport {
    const now = this.#now();
    const families = [...this.#families.values()];
    const stuck = families.find(({ oldestQueuedMs, oldestBegunMs = oldestQueuedMs }) => {
      return oldestBegunMs !== undefined && now.monotonicMs - oldestBegunMs >= this.#timeoutMs;
    });
    const updates = families.flatMap(({ lastUpdated }) => lastUpdated ?? []);
    const [latest] = updates.sort((a, b) => b.monotonicMs - a.monotonicMs);
    return { healthy: stuck === undefined, lastUpdated: stuck === undefined ? latest : stuck.lastUpdated, now };
  }

  /** When the rules of this family were last in sync. */
  lastUpdated(family: IpFamily): Instant | undefined {
    return this.#families.get(family)?.lastUpdated;
  }

  #now(): Instant {
    return { wallMs: this.#clock.wallNow(), monotonicMs: this.#clock.now() };
  }
}
