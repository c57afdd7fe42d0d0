import {
  CONNECT_TIMES,
  COUNTERS,
  type Counter,
  type Counters,
  type DataPlane,
  failuresOf,
  GAUGES,
  type ListenerStats,
} from '../../model/data-plane.ts';
import type { ListenerId } from '../../model/service-port.ts';
import { HISTORY_MS, type HistorySample, type Rates, SAMPLE_MS } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import { eachInSlices, sleep } from '../../util/wait.ts';
import { ConnectTimes } from './connect-times.ts';

/* Rates, problems and history, computed from the counters of the listeners. */

export function noCounters(): Counters {
  return Object.fromEntries(COUNTERS.map((name) => [name, 0])) as Counters;
}

export function addTo(sum: Counters, counters: Readonly<Counters>): void {
  for (const name of COUNTERS) sum[name] += counters[name];
}

export const NO_RATES: Rates = { connections: 0, receivedBytes: 0, sentBytes: 0, failures: 0 };

export function addRates(a: Rates, b: Rates): Rates {
  return {
    connections: a.connections + b.connections,
    receivedBytes: a.receivedBytes + b.receivedBytes,
    sentBytes: a.sentBytes + b.sentBytes,
    failures: a.failures + b.failures,
  };
}

/** Problems of the clients of a listener, the worst first: their counters, and a clause for operators. */
const PROBLEMS: readonly { readonly counters: readonly Counter[]; readonly reason: string }[] = [
  {
    counters: ['exhausted', 'noEndpoints'],
    reason: 'clients were refused during the last minute because no endpoint answered',
  },
  {
    counters: ['waitTimeouts', 'waitRefused'],
    reason: 'clients were refused during the last minute because they had waited for too long, or too many waited',
  },
  {
    counters: ['pauses'],
    reason:
      'new clients had to wait during the last minute because its namespace, or everybody, was out of descriptors',
  },
  {
    counters: ['limited'],
    reason: 'UDP datagrams were dropped during the last minute, at a bound on flows or because buffers were full',
  },
  {
    counters: ['failedRefused', 'failedTimeout', 'failedUnreachable', 'failedOther'],
    reason: 'connections to an endpoint failed during the last minute',
  },
];

const PROBLEM_COUNTERS = PROBLEMS.flatMap(({ counters }) => counters);

/** How long a problem makes a Service degraded. */
const PROBLEM_MS = 60_000;

const NOTHING: Readonly<Counters> = noCounters();
const NEVER = PROBLEMS.map(() => Number.NEGATIVE_INFINITY);
/** Without those of connect times: each of these dials counts in `connects`, too. */
const COMPARED = COUNTERS.slice(0, -CONNECT_TIMES.length);
const MAX_SAMPLES = HISTORY_MS / SAMPLE_MS;

interface TrafficSamplerOptions {
  readonly clock: Clock;
  readonly dataPlane: Pick<DataPlane, 'stats'>;
  /** Called when a sample begins, for other measurements over the same period. */
  readonly onSample: () => void;
  readonly log: Pick<Log, 'error'>;
}

/** The last sample of one listener. */
interface Seen {
  readonly atMs: number;
  readonly counters: Readonly<Counters>;
  /** Absent before the first sample, when it was only looked at. */
  readonly rates?: Rates;
  /** For each of {@link PROBLEMS}, when it was last seen to have grown (`Clock.now()`). */
  readonly problemsAt: readonly number[];
}

/**
 * Reads every listener's counters every few seconds, in slices of the event loop. Counts from before the start belong
 * to no period: a predecessor may have made them. A later listener counts from zero, as does one whose counters have
 * fallen, because it was closed and opened again.
 */
export class TrafficSampler {
  readonly #options: TrafficSamplerOptions;
  readonly #history: HistorySample[] = [];
  /** Those that have counted something: of ten thousand listeners most carry nothing. */
  #seen = new Map<ListenerId, Seen>();
  readonly connectTimes = new ConnectTimes();
  #totals: Readonly<Counters> = NOTHING;
  #rates: Rates | undefined;
  /** When the current period began. */
  #beganMs = 0;
  #stopping = new AbortController();

  constructor(options: TrafficSamplerOptions) {
    this.#options = options;
  }

  /** Of every listener together, at the last look. */
  get totals(): Readonly<Counters> {
    return this.#totals;
  }

  /** `undefined` until one period has passed. */
  get rates(): Rates | undefined {
    return this.#rates;
  }

  get history(): readonly HistorySample[] {
    return this.#history;
  }

  /** In the last period; `undefined` until one has passed. */
  ratesOf(id: ListenerId): Rates | undefined {
    return this.#rates && (this.#seen.get(id)?.rates ?? NO_RATES);
  }

  /** The worst problem of these listeners in the last minute. */
  problemOf(ids: readonly ListenerId[]): string | undefined {
    const sinceMs = this.#options.clock.now() - PROBLEM_MS;
    const seen = ids.map((id) => this.#seen.get(id)?.problemsAt ?? NEVER);
    return PROBLEMS.find((_, at) => seen.some((problemsAt) => (problemsAt[at] as number) > sinceMs))?.reason;
  }

  /** Call it once the listeners of a predecessor have been taken over. */
  start(): void {
    const { clock, dataPlane } = this.#options;
    this.#beganMs = clock.now();
    this.connectTimes.begin(this.#beganMs);
    for (const stats of dataPlane.stats()) {
      const { id, counters } = stats;
      if (!hasCounted(counters)) continue;
      this.#seen.set(id, this.#firstLook(counters));
      this.#noteConnects(stats);
    }
    this.connectTimes.forget();
    this.#stopping = new AbortController();
    void this.#run(this.#stopping.signal);
  }

  stop(): void {
    this.#stopping.abort();
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    for (;;) {
      await sleep(SAMPLE_MS, clock, signal);
      if (signal.aborted) return;
      try {
        await this.#sample();
      } catch (error) {
        log.error('Cannot sample the traffic; retrying with the next sample', { err: messageOf(error) });
      }
    }
  }

  async #sample(): Promise<void> {
    const { clock, dataPlane, onSample } = this.#options;
    const beganMs = clock.now();
    onSample();
    const seen = new Map<ListenerId, Seen>();
    const totals = noCounters();
    let rates = NO_RATES;
    const isDue = this.connectTimes.begin(beganMs);
    await eachInSlices(clock, dataPlane.stats(), (stats) => {
      const { id, counters } = stats;
      if (!hasCounted(counters)) return;
      if (isDue) this.#noteConnects(stats);
      const look = this.#look(this.#seen.get(id), counters);
      seen.set(id, look);
      addTo(totals, counters);
      rates = addRates(rates, look.rates);
    });
    this.#beganMs = beganMs;
    this.#seen = seen;
    this.#totals = totals;
    this.#rates = rates;
    this.#history.push({ ...rates, at: clock.wallNow(), active: totals.active });
    if (this.#history.length > MAX_SAMPLES) this.#history.shift();
  }

  #noteConnects(stats: ListenerStats): void {
    const { id, counters } = stats;
    if (counters.connects === 0) return;
    this.connectTimes.note(id, counters);
    for (const each of stats.endpoints ?? []) this.connectTimes.note(id, each.counters, each.endpoint);
  }

  /** As if it had counted this when the period began. */
  #firstLook(counters: Readonly<Counters>): Seen {
    return { atMs: this.#beganMs, counters: { ...counters }, problemsAt: NEVER };
  }

  #look(known: Seen | undefined, counters: Readonly<Counters>): Seen & { readonly rates: Rates } {
    const atMs = this.#options.clock.now();
    const change = known === undefined ? 'reset' : changeOf(known.counters, counters);
    if (known !== undefined && change === 'none') return { ...known, atMs, rates: NO_RATES };
    const last = known !== undefined && change === 'growth' ? known : this.#firstLook(NOTHING);
    const perSecond = 1_000 / Math.max(1, atMs - last.atMs);
    const hasGrown = (name: Counter) => counters[name] > last.counters[name];
    return {
      atMs,
      counters: { ...counters },
      rates: {
        connections: (counters.connections - last.counters.connections) * perSecond,
        receivedBytes: (counters.receivedBytes - last.counters.receivedBytes) * perSecond,
        sentBytes: (counters.sentBytes - last.counters.sentBytes) * perSecond,
        failures: (failuresOf(counters) - failuresOf(last.counters)) * perSecond,
      },
      problemsAt: PROBLEM_COUNTERS.some(hasGrown)
        ? PROBLEMS.map(({ counters: names }, at) => (names.some(hasGrown) ? atMs : (last.problemsAt[at] as number)))
        : last.problemsAt,
    };
  }
}

function hasCounted(counters: Readonly<Counters>): boolean {
  return COUNTERS.some((name) => counters[name] !== 0);
}

/** `reset`: a counter has fallen, so the listener counts from zero. One pass, as there are ten thousand listeners. */
function changeOf(before: Readonly<Counters>, now: Readonly<Counters>): 'none' | 'growth' | 'reset' {
  let change: 'none' | 'growth' = 'none';
  for (const name of COMPARED) {
    if (now[name] === before[name]) continue;
    if (now[name] < before[name] && !GAUGES.has(name)) return 'reset';
    change = 'growth';
  }
  return change;
}
