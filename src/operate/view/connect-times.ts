import { CONNECT_BOUNDS_MS, CONNECT_TIMES, type Counters } from '../../model/data-plane.ts';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import type { ListenerId } from '../../model/service-port.ts';
import type { ConnectTime } from '../../model/view.ts';

/** The times cover between one and two of these. */
const PERIOD_MS = 120_000;

/** How many dials there were of each of {@link CONNECT_TIMES}. */
export type Histogram = readonly number[];

type Key = ListenerId | `${ListenerId} ${string}`;

/** How long the answered dials of the last minutes took: what has been counted since the snapshot before the last. */
export class ConnectTimes {
  #before: ReadonlyMap<Key, Histogram> = new Map();
  #last = new Map<Key, Histogram>();
  #lastMs = Number.NEGATIVE_INFINITY;

  /** Whether a snapshot of all listeners is due. Begins it. */
  begin(nowMs: number): boolean {
    if (nowMs - this.#lastMs < PERIOD_MS) return false;
    this.#lastMs = nowMs;
    this.#before = this.#last;
    this.#last = new Map();
    return true;
  }

  note(id: ListenerId, counters: Readonly<Counters>, endpoint?: NamedEndpoint): void {
    if (counters.connects > 0) this.#last.set(keyOf(id, endpoint), histogramOf(counters));
  }

  /** What was counted before belongs to no period. */
  forget(): void {
    this.#before = this.#last;
  }

  since(id: ListenerId, counters: Readonly<Counters>, endpoint?: NamedEndpoint): Histogram {
    const now = histogramOf(counters);
    const before = this.#before.get(keyOf(id, endpoint));
    // Counters that have fallen count from zero.
    if (before === undefined || now.some((count, index) => count < (before[index] ?? 0))) return now;
    return now.map((count, index) => count - (before[index] ?? 0));
  }
}

function keyOf(id: ListenerId, endpoint: NamedEndpoint | undefined): Key {
  return endpoint === undefined ? id : `${id} ${endpoint.name}`;
}

function histogramOf(counters: Readonly<Counters>): Histogram {
  return CONNECT_TIMES.map((counter) => counters[counter]);
}

export function sumOf(histograms: readonly Histogram[]): Histogram {
  return CONNECT_TIMES.map((_, index) => histograms.reduce((sum, each) => sum + (each[index] ?? 0), 0));
}

/** `undefined` without any. */
export function connectTime(histogram: Histogram): ConnectTime | undefined {
  const count = histogram.reduce((sum, each) => sum + each, 0);
  if (count === 0) return undefined;
  return { p50: boundOf(histogram, 0.5 * count), p99: boundOf(histogram, 0.99 * count), count };
}

/** At least `rank` dials took no longer. */
function boundOf(histogram: Histogram, rank: number): number {
  let within = 0;
  return CONNECT_BOUNDS_MS.find((_, index) => {
    within += histogram[index] ?? 0;
    return within >= rank;
  }) as number;
}
