import type { ConnectionEntry, ConnectionLogSink } from '../../model/connection-log.ts';
import type { DataPlane } from '../../model/data-plane.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';

/** Where entries are dropped: on their way from a worker, before the file, before a reader of `tail`. */
type DropPlace = 'engine' | 'file' | 'tail';

/** For metrics, since the start. */
export interface ConnectionLogCounts {
  /** That somebody wanted. */
  readonly entries: number;
  readonly dropped: Readonly<Record<DropPlace, number>>;
}

const SLOW: Readonly<Record<DropPlace, string>> = {
  engine: 'the main thread is behind',
  file: 'its file cannot be written, or not as fast',
  tail: 'a reader of tail is too slow',
};

/** So long nothing may be dropped before it counts as over. */
const QUIET_MS = 10_000;

/**
 * Gives the entries of the connection log to all who want them. While there are none, the engine makes no entries.
 * Each of them bounds what it keeps, and reports what it drops.
 */
export class ConnectionFeed implements ConnectionLogSink {
  readonly #dataPlane: Pick<DataPlane, 'logConnections'>;
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #sinks = new Set<ConnectionLogSink>();
  readonly #dropped: Record<DropPlace, number> = { engine: 0, file: 0, tail: 0 };
  readonly #dropping = new Map<DropPlace, { readonly from: number; lastMs: number }>();
  #entries = 0;

  constructor({ dataPlane, log, clock }: { dataPlane: Pick<DataPlane, 'logConnections'>; log: Log; clock: Clock }) {
    this.#dataPlane = dataPlane;
    this.#log = log;
    this.#clock = clock;
  }

  get counts(): ConnectionLogCounts {
    return { entries: this.#entries, dropped: this.#dropped };
  }

  /** Until the returned function is called. */
  subscribe(sink: ConnectionLogSink): () => void {
    this.#sinks.add(sink);
    if (this.#sinks.size === 1) this.#dataPlane.logConnections(this);
    return () => {
      if (this.#sinks.delete(sink) && this.#sinks.size === 0) this.#dataPlane.logConnections(undefined);
    };
  }

  ended(entries: readonly ConnectionEntry[]): void {
    this.#entries += entries.length;
    for (const sink of this.#sinks) sink.ended(entries);
  }

  lost(count: number): void {
    this.#entries += count;
    this.dropped('engine', count);
    for (const sink of this.#sinks) sink.lost(count);
  }

  /** Counts, and logs when it begins and when it is over. */
  dropped(place: DropPlace, count: number, err?: string): void {
    const before = this.#dropped[place];
    this.#dropped[place] += count;
    const known = this.#dropping.get(place);
    if (known !== undefined) {
      known.lastMs = this.#clock.now();
      return;
    }
    this.#dropping.set(place, { from: before, lastMs: this.#clock.now() });
    this.#log.warn(`Entries of the connection log are dropped: ${SLOW[place]}`, { at: place, err });
    this.#watch(place, QUIET_MS);
  }

  #watch(place: DropPlace, ms: number): void {
    this.#clock.after(ms, () => {
      const dropping = this.#dropping.get(place);
      if (dropping === undefined) return;
      const leftMs = dropping.lastMs + QUIET_MS - this.#clock.now();
      if (leftMs > 0) {
        this.#watch(place, leftMs);
        return;
      }
      this.#dropping.delete(place);
      const dropped = this.#dropped[place] - dropping.from;
      this.#log.info('No more entries of the connection log are dropped', { at: place, dropped });
    });
  }
}
