import type { Clock } from '../contracts/clock.ts';
import type { Log } from '../contracts/log.ts';
import type { SyncHealth, SyncMetrics } from '../contracts/metrics.ts';
import type { SourceSink } from '../contracts/source.ts';
import type { SourceEvent } from '../model/source-event.ts';
import type { ServiceTracker } from '../state/service-tracker.ts';
import { BoundedFrequencyRunner, type RunCause } from './bounded-frequency-runner.ts';
import type { Listeners } from './listeners.ts';
import type { RuleSync } from './rule-sync.ts';

export interface ControllerOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: SyncMetrics;
  readonly health: SyncHealth;
  readonly tracker: ServiceTracker;
  readonly listeners: Listeners;
  readonly rules: RuleSync;
  readonly syncPeriodMs: number;
  readonly minSyncPeriodMs: number;
}

/** As upstream: two syncs may follow each other at once, further ones wait for the minimal period. */
const BURST = 2;

/**
 * Carries changes from the source to the data plane and the kernel. Endpoint and affinity changes reach the pickers at
 * once; only what alters rules waits for a sync, so a busy cluster's endpoint churn never starts iptables.
 */
export class Controller implements SourceSink {
  readonly #options: ControllerOptions;
  readonly #runner: BoundedFrequencyRunner;
  #synced = false;
  #flushArmed = false;
  #requestArmed = false;
  #stopped = false;

  constructor(options: ControllerOptions) {
    this.#options = options;
    this.#runner = new BoundedFrequencyRunner({
      clock: options.clock,
      minIntervalMs: options.minSyncPeriodMs,
      maxIntervalMs: options.syncPeriodMs,
      burst: BURST,
      run: (cause) => this.#syncRules(cause),
    });
  }

  apply(events: readonly SourceEvent[]): void {
    const { tracker, metrics } = this.#options;
    tracker.apply(events);
    const services = events.filter((event) => event.kind === 'Service').length;
    metrics.changed('service', services);
    metrics.changed('endpoint', events.length - services);
    this.#armFlush();
  }

  synced(): void {
    this.#synced = true;
    this.#flush();
    // Even of nothing: rules that a predecessor left may have to go.
    this.portalsChanged();
  }

  /** Rules must follow: a listener came or went, or what rules say of it changed. */
  portalsChanged(): void {
    if (!this.#synced) return;
    this.#options.metrics.changesQueued();
    this.#options.health.queuedUpdate();
    if (this.#requestArmed) return;
    this.#requestArmed = true;
    // Listeners that are on their way come into the same sync instead of each asking for one of their own.
    void this.#options.listeners.settled().then(() => {
      this.#requestArmed = false;
      this.#runner.request();
    });
  }

  /** Nothing is programmed any more; resolves when the sync that is going on has ended. Rules stay, as upstream. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#options.listeners.stop();
    await this.#runner.stop();
  }

  /** Events of one turn of the event loop take effect together. */
  #armFlush(): void {
    if (!this.#synced || this.#flushArmed || this.#stopped) return;
    this.#flushArmed = true;
    this.#options.clock.after(0, () => {
      this.#flushArmed = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#stopped) return;
    const { tracker, listeners, log } = this.#options;
    const delta = tracker.takeDelta();
    for (const { name, reason } of delta.unserved) log.warn('This Service port is not served', { svc: name, reason });
    for (const name of delta.removed) listeners.unwant(name);
    for (const port of delta.upserted) listeners.want(port);
  }

  async #syncRules(cause: RunCause): Promise<boolean> {
    const { clock, listeners, rules, metrics, health, log } = this.#options;
    const startedAt = clock.now();
    try {
      const retired = listeners.retired();
      const verify = cause !== 'change';
      await rules.sync(listeners.portals(), { verify });
      listeners.closeRetired(retired);
      health.updated();
      log.v(2)?.info('Rules are in sync', { cause, ms: Math.round(clock.now() - startedAt) });
      return true;
    } catch (error) {
      health.queuedUpdate();
      log.error('Cannot sync the iptables rules; the installed ones stay, trying again', {
        err: error instanceof Error ? error.message : String(error),
      });
      return false;
    } finally {
      metrics.syncDone(clock.now() - startedAt);
    }
  }
}
