import type { PortBook } from '../capture/port-book.ts';
import type { Cidr } from '../model/address.ts';
import type { Capture, Synced } from '../model/capture.ts';
import type { SyncHealth, SyncMetrics } from '../model/metrics.ts';
import type { ServicePortName } from '../model/service.ts';
import type { SnapshotDelta } from '../model/service-port.ts';
import type { SourceEvent, SourceSink } from '../model/source.ts';
import type { ServiceTracker } from '../services/service-tracker.ts';
import type { Clock } from '../util/clock.ts';
import { foundText } from '../util/found.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { messageOf, stackOf } from '../util/text.ts';
import { backoffMs, inSlices, nextTurn, sleep } from '../util/wait.ts';
import { BoundedFrequencyRunner, type RunCause } from './bounded-frequency-runner.ts';
import { Canary } from './canary.ts';
import type { FlowSync } from './flow-sync.ts';
import type { Listeners } from './listeners.ts';
import { ProblemLog } from './problem-log.ts';
import { ServiceLog } from './service-log.ts';

export interface ControllerOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: SyncMetrics;
  readonly health: SyncHealth;
  readonly tracker: ServiceTracker;
  readonly listeners: Listeners;
  readonly ports: Pick<PortBook, 'remember'>;
  readonly capture: Pick<Capture, 'apply' | 'dropUnassigned' | 'sync' | 'isIntact' | 'installedPorts' | 'problems'>;
  readonly flows: Pick<FlowSync, 'clear'>;
  /** Must not throw. */
  readonly onDelta?: (delta: SnapshotDelta) => void;
  readonly syncPeriodMs: number;
  readonly minSyncPeriodMs: number;
}

/** Syncs that may follow each other at once, as upstream. */
const BURST = 2;

/** Flushed rules are back within five seconds: this, and the time of a sync. */
const CANARY_MS = 2_000;

/** Work between two looks at the clock. */
const SERVICES_PER_STEP = 16;

const NO_CHANGE: SnapshotDelta = {
  upserted: [],
  removed: [],
  unserved: [],
  refused: [],
  failed: new Map(),
  healthChecks: new Map(),
  triggeredAt: [],
};

const UNEXPECTED = 'An unexpected error; please report it';

const RETRY = { firstMs: 1_000, maxMs: 30_000 };

/**
 * Carries the changes of one address family: source events → tracker → listeners → rules and flows. Endpoint and
 * affinity changes reach the pickers at once. Only changes of rules wait for a sync, so endpoint churn never starts
 * iptables. Many changes are processed in slices, and later changes join them.
 *
 * Two facts go back up, in the constructor: changed portals request a sync, and the tracker reads which local ports are
 * open, to refuse endpoints that name one.
 */
export class Controller implements SourceSink {
  readonly #options: ControllerOptions;
  readonly #runner: BoundedFrequencyRunner;
  readonly #canary: Canary;
  readonly #lines: ServiceLog;
  readonly #problems: ProblemLog;
  readonly #readFault: LastingFault;
  readonly #syncFault: LastingFault;
  #isSynced = false;
  #knowsPorts = false;
  /** Set while changes are being processed or will be. */
  #flushing: Promise<void> | undefined;
  #requestArmed = false;
  /** Until a sync has brought them back. */
  #rulesLost = false;
  #stopped = false;

  constructor(options: ControllerOptions) {
    const { clock, log, capture, tracker, listeners } = options;
    this.#options = options;
    this.#lines = new ServiceLog(log, clock);
    this.#problems = new ProblemLog(log, clock);
    this.#readFault = new LastingFault({
      log,
      begun: 'Cannot read the rules in the kernel; serving nothing until a retry succeeds',
      over: 'The rules in the kernel can be read',
    });
    this.#syncFault = new LastingFault({
      log,
      begun: 'Cannot sync the rules in the kernel; the installed ones stay until a retry succeeds',
      over: 'The rules in the kernel are in sync again',
    });
    this.#runner = new BoundedFrequencyRunner({
      clock,
      minIntervalMs: options.minSyncPeriodMs,
      maxIntervalMs: options.syncPeriodMs,
      burst: BURST,
      run: (cause) => this.#syncRules(cause),
    });
    this.#canary = new Canary({
      clock,
      intervalMs: CANARY_MS,
      look: () => capture.isIntact(),
      onLost: () => this.#repair(),
    });
    tracker.addresses.proxyPorts = listeners.localPorts;
    listeners.onPortalsChanged(() => this.#portalsChanged());
    listeners.onUnserved((port) => {
      const uid = tracker.uidOf(port.name);
      options.onDelta?.({ ...NO_CHANGE, unserved: [{ ...port, ...(uid !== undefined && { uid }) }] });
    });
  }

  /**
   * Reads the local ports of a previous run from its rules, so that Service ports keep them. Opens nothing before that.
   * Retries until it succeeds: without iptables nothing can be served.
   */
  async start(): Promise<void> {
    const { clock, health, capture, ports } = this.#options;
    for (let failures = 1; !this.#stopped; failures++) {
      try {
        ports.remember(await capture.installedPorts());
        this.#readFault.succeeded();
        this.#knowsPorts = true;
        this.#begin();
        return;
      } catch (error) {
        health.queuedUpdate();
        this.#readFault.failed(messageOf(error));
        await sleep(backoffMs(failures, RETRY), clock);
      }
    }
  }

  apply(events: readonly SourceEvent[]): void {
    this.#options.tracker.apply(events);
    this.#armFlush();
  }

  /** Call it when the tracker got something other than an event. */
  trackerChanged(): void {
    if (this.#options.tracker.pendingServices > 0) this.#armFlush();
  }

  synced(): void {
    this.#isSynced = true;
    this.#begin();
  }

  /** The node has another address than the installed rules. */
  nodeChanged(): void {
    this.#portalsChanged();
  }

  /** See `Capture.dropUnassigned`. */
  dropUnassigned(blocks: readonly Cidr[]): void {
    this.#options.capture.dropUnassigned(blocks);
    this.#portalsChanged();
  }

  /** Resolves when the current sync has ended. Rules stay, as upstream. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#options.listeners.stop();
    await Promise.all([this.#runner.stop(), this.#canary.stop()]);
  }

  /** Stops, and waits until no listener is being opened, updated or closed: another process can take them over. */
  async pause(): Promise<void> {
    // Meanwhile changes of endpoints reach the pickers.
    await Promise.all([this.#runner.stop(), this.#canary.stop()]);
    await this.stop();
    await this.#settled();
  }

  resume(): void {
    this.#stopped = false;
    const { listeners } = this.#options;
    for (const each of [listeners, this.#runner, this.#canary]) each.resume();
    if (this.#knowsPorts) this.#begin();
    else void this.start();
  }

  get hasCaughtUp(): boolean {
    return this.#isReady && this.#flushing === undefined;
  }

  get #isReady(): boolean {
    return this.#isSynced && this.#knowsPorts;
  }

  #begin(): void {
    if (!this.#isReady || this.#stopped) return;
    this.#armFlush();
    // Even without Services: a predecessor's rules may have to go.
    this.#portalsChanged();
  }

  /** Requests a sync after current changes and openings of listeners, so that they share one. */
  #portalsChanged(): void {
    if (!this.#isReady) return;
    this.#options.metrics.changesQueued();
    this.#options.health.queuedUpdate();
    if (this.#requestArmed) return;
    this.#requestArmed = true;
    void this.#requestSync();
  }

  async #requestSync(): Promise<void> {
    try {
      await this.#settled();
      await this.#recheckEndpoints();
    } catch (error) {
      this.#options.log.error(UNEXPECTED, { err: stackOf(error) });
    } finally {
      this.#requestArmed = false;
      this.#runner.request();
    }
  }

  /** The events of one turn take effect together. */
  #armFlush(): void {
    if (!this.#isReady || this.#flushing !== undefined || this.#stopped) return;
    const { clock } = this.#options;
    this.#flushing = nextTurn(clock).then(() => inSlices(clock, () => this.#flushSome()));
  }

  /** Returns whether there is more. */
  #flushSome(): boolean {
    const { tracker, listeners, log, onDelta } = this.#options;
    let isMore = false;
    try {
      if (this.#stopped) return false;
      const delta = tracker.takeDelta(SERVICES_PER_STEP);
      for (const port of delta.unserved) {
        const { name, more } = port;
        const fields = { ...(more !== undefined && { more }), reason: foundText(port) };
        this.#lines.warn(name, 'This Service port is not served', fields);
      }
      for (const part of delta.refused) {
        const { name, what } = part;
        this.#lines.warn(name, 'A part of this Service port is left out', { what, reason: foundText(part) });
      }
      for (const [key, err] of delta.failed) {
        if (err === undefined) log.info('The changes of this Service take effect again', { svc: key });
        else this.#lines.error(key, 'A change of this Service has no effect; please report it', { err });
      }
      this.#attempt(() => onDelta?.(delta));
      this.#attempt(() => listeners.vacate(tracker.addresses.takeNewPorts()));
      for (const name of delta.removed) this.#attempt(() => listeners.unwant(name), name);
      for (const port of delta.upserted) this.#attempt(() => listeners.want(port), port.name);
      isMore = tracker.pendingServices > 0;
      return isMore;
    } finally {
      // In this very turn: an event after it needs another flush.
      if (!isMore) this.#flushing = undefined;
    }
  }

  /** An exception must not cost the other Services of the delta, which the tracker takes for served. */
  #attempt(act: () => void, svc?: ServicePortName): void {
    try {
      act();
    } catch (error) {
      this.#options.log.error(UNEXPECTED, { ...(svc !== undefined && { svc }), err: stackOf(error) });
    }
  }

  async #settled(): Promise<void> {
    await this.#flushing;
    await this.#options.listeners.settled();
  }

  /** An endpoint may name a new local port. It is refused before rules send there. */
  async #recheckEndpoints(): Promise<void> {
    const { tracker, listeners } = this.#options;
    if (!listeners.takeNewPorts()) return;
    tracker.listeningChanged();
    this.trackerChanged();
    await this.#settled();
  }

  #repair(): void {
    // A failing repair is retried, and has its own line.
    if (this.#stopped || this.#rulesLost) return;
    this.#options.log.warn('The rules in the kernel are not as they were installed; repairing them');
    this.#options.health.queuedUpdate();
    this.#rulesLost = true;
    this.#runner.request();
  }

  async #syncRules(cause: RunCause): Promise<boolean> {
    const { clock, listeners, flows, capture, metrics, health, log } = this.#options;
    const startedAt = clock.now();
    let err: string | undefined;
    let verify = false;
    let synced: Pick<Synced, 'flows' | 'missed'> = { flows: [], missed: [] };
    try {
      await this.#canary.during(async () => {
        // Not before: the canary may have been looking.
        verify = cause !== 'change' || this.#rulesLost;
        const retired = listeners.retired();
        const delta = listeners.takePortalDelta();
        health.syncBegins();
        capture.apply(delta);
        synced = await capture.sync({ verify });
        // Before the canary looks again.
        this.#rulesLost = false;
        listeners.closeRetired(retired);
        this.#problems.report(capture.problems());
      });
      health.updated();
      this.#syncFault.succeeded();
      await flows.clear(synced);
      log.v(2)?.info('Rules are in sync', { cause, ms: Math.round(clock.now() - startedAt) });
      return true;
    } catch (error) {
      err = messageOf(error);
      health.queuedUpdate();
      this.#syncFault.failed(err);
      return false;
    } finally {
      const kind = verify ? 'full' : 'partial';
      metrics.syncDone({ kind, durationMs: clock.now() - startedAt, ...(err !== undefined && { err }) });
    }
  }
}
