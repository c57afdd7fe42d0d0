import { type Counters, type DataPlane, failuresOf } from '../../model/data-plane.ts';
import type { ListenerId } from '../../model/service-port.ts';
import { HISTORY_MS, type HistorySample, type Rates, SAMPLE_MS } from '../../model/view.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import { inSlices } from '../../util/wait.ts';
import { addTo, NO_RATES, noCounters } from './counters.ts';
import { countOf, TROUBLES, type Trouble } from './trouble.ts';

/** Trouble makes a Service degraded for so long. */
const TROUBLED_MS = 60_000;

const NOTHING = noCounters();

const MAX_SAMPLES = HISTORY_MS / SAMPLE_MS;

export interface TrafficSamplerOptions {
  readonly clock: Clock;
  readonly dataPlane: Pick<DataPlane, 'stats'>;
  /** For what else is to be told of the same periods. */
  readonly onSample: () => void;
  readonly log: Pick<Log, 'error'>;
}

/** What one listener had when it was last looked at. */
interface Seen {
  /** `Clock.now()`. */
  atMs: number;
  connections: number;
  receivedBytes: number;
  sentBytes: number;
  failures: number;
  /** How often each of {@link TROUBLES} was counted, and `Clock.now()` of the last look that found more of it. */
  readonly troubles: { count: number; atMs: number }[];
  rates: Rates;
  /** The number of the sweep that found it. */
  sweep: number;
}

/**
 * Looks at every listener's counters now and then, a slice of the event loop at a time: for rates, and for the node's
 * history. What a listener has at the first look of all is not of any period: a predecessor may have counted it. One that
 * comes later, or was closed and opened again, so that its counters have fallen, counts from zero.
 */
export class TrafficSampler {
  readonly #clock: Clock;
  readonly #dataPlane: Pick<DataPlane, 'stats'>;
  readonly #onSample: () => void;
  readonly #log: Pick<Log, 'error'>;
  readonly #seen = new Map<ListenerId, Seen>();
  readonly #history: HistorySample[] = [];
  #totals: Readonly<Counters> = noCounters();
  #rates: Rates = NO_RATES;
  #sweep = 0;
  /** When the period that is going on began. */
  #beganMs = 0;
  #timer: Timer | undefined;
  #isStopped = false;

  constructor({ clock, dataPlane, onSample, log }: TrafficSamplerOptions) {
    this.#clock = clock;
    this.#dataPlane = dataPlane;
    this.#onSample = onSample;
    this.#log = log;
  }

  /** Of every listener together, at the last look. */
  get totals(): Readonly<Counters> {
    return this.#totals;
  }

  get rates(): Rates {
    return this.#rates;
  }

  get history(): readonly HistorySample[] {
    return this.#history;
  }

  ratesOf(id: ListenerId): Rates {
    return this.#seen.get(id)?.rates ?? NO_RATES;
  }

  /** The worst that was met there within the last minute. */
  troubleOf(id: ListenerId): Trouble | undefined {
    const nowMs = this.#clock.now();
    const troubles = this.#seen.get(id)?.troubles ?? [];
    return TROUBLES[troubles.findIndex(({ atMs }) => nowMs - atMs < TROUBLED_MS)];
  }

  /** Once listeners that were taken over are there. */
  start(): void {
    this.#isStopped = false;
    this.#beganMs = this.#clock.now();
    for (const stats of this.#dataPlane.stats()) this.#seen.set(stats.id, this.#seenFirst(stats.counters));
    this.#sampleLater();
  }

  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
  }

  #sampleLater(): void {
    this.#timer = this.#clock.after(SAMPLE_MS, () => {
      void this.#sampleOrTell().then(() => {
        if (!this.#isStopped) this.#sampleLater();
      });
    });
  }

  async #sampleOrTell(): Promise<void> {
    try {
      await this.#sample();
    } catch (error) {
      this.#log.error('Cannot sample the traffic, trying again with the next sample', { err: messageOf(error) });
    }
  }

  async #sample(): Promise<void> {
    const sweep = ++this.#sweep;
    const beginsMs = this.#clock.now();
    this.#onSample();
    const totals = noCounters();
    const rates = { ...NO_RATES };
    const stats = this.#dataPlane.stats()[Symbol.iterator]();
    await inSlices(this.#clock, () => {
      const next = stats.next();
      if (next.done) return false;
      const { id, counters } = next.value;
      addTo(totals, counters);
      const seen = this.#look(id, counters, sweep);
      rates.connections += seen.connections;
      rates.receivedBytes += seen.receivedBytes;
      rates.sentBytes += seen.sentBytes;
      rates.failures += seen.failures;
      return true;
    });
    this.#beganMs = beginsMs;
    for (const [id, seen] of this.#seen) if (seen.sweep !== sweep) this.#seen.delete(id);
    this.#totals = totals;
    this.#rates = rates;
    this.#history.push({ ...rates, at: this.#clock.wallNow(), active: totals.active });
    if (this.#history.length > MAX_SAMPLES) this.#history.shift();
  }

  /** The rates since the last look. */
  #look(id: ListenerId, counters: Readonly<Counters>, sweep: number): Rates {
    const { connections, receivedBytes, sentBytes } = counters;
    const failures = failuresOf(counters);
    const atMs = this.#clock.now();
    const known = this.#seen.get(id);
    const last = known !== undefined && hasGoneOn(known, counters) ? known : this.#seenFirst();
    if (last !== known) this.#seen.set(id, last);
    const perSecond = 1_000 / Math.max(1, atMs - last.atMs);
    const isStill =
      connections === last.connections &&
      receivedBytes === last.receivedBytes &&
      sentBytes === last.sentBytes &&
      failures === last.failures;
    last.rates = isStill
      ? NO_RATES
      : {
          connections: (connections - last.connections) * perSecond,
          receivedBytes: (receivedBytes - last.receivedBytes) * perSecond,
          sentBytes: (sentBytes - last.sentBytes) * perSecond,
          failures: (failures - last.failures) * perSecond,
        };
    for (const [at, seen] of last.troubles.entries()) {
      const count = countOf(TROUBLES[at] as Trouble, counters);
      if (count > seen.count) seen.atMs = atMs;
      seen.count = count;
    }
    Object.assign(last, { atMs, connections, receivedBytes, sentBytes, failures, sweep });
    return last.rates;
  }

  /** As if it had had these when the period began. */
  #seenFirst(counters: Readonly<Counters> = NOTHING): Seen {
    const { connections, receivedBytes, sentBytes } = counters;
    return {
      ...{ connections, receivedBytes, sentBytes, failures: failuresOf(counters) },
      atMs: this.#beganMs,
      troubles: TROUBLES.map((trouble) => ({ count: countOf(trouble, counters), atMs: Number.NEGATIVE_INFINITY })),
      rates: NO_RATES,
      sweep: this.#sweep,
    };
  }
}

/** A listener that was closed and opened again may have more of one kind by now than it had of it before. */
function hasGoneOn(before: Seen, now: Readonly<Counters>): boolean {
  return (
    now.connections >= before.connections &&
    now.receivedBytes >= before.receivedBytes &&
    now.sentBytes >= before.sentBytes &&
    failuresOf(now) >= before.failures
  );
}
