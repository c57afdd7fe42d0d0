import type { ConnectionEntry, ConnectionLogSink } from '../../model/connection-log.ts';
import type { Clock } from '../../util/clock.ts';
import { sleep } from '../../util/wait.ts';

/** Some 500 KB. A reader that is further behind misses entries. */
export const MAX_QUEUED = 2_048;

const ENTRIES_PER_PIECE = 128;

/** So that the reader can tell a quiet proxy from a dead one. */
export const SIGN_OF_LIFE_MS = 15_000;

/** What one reader of `tail` gets next. */
interface TailPiece {
  readonly entries: readonly ConnectionEntry[];
  /** So many more have been dropped before these. */
  readonly missing: number;
}

interface TailOptions {
  readonly clock: Clock;
  readonly isWanted: (entry: ConnectionEntry) => boolean;
  readonly onDropped: (count: number) => void;
}

/** What one reader of `tail` has not taken yet. */
export class Tail implements ConnectionLogSink {
  readonly #options: TailOptions;
  readonly #entries: ConnectionEntry[] = [];
  #missing = 0;
  #wake = (): void => {};

  constructor(options: TailOptions) {
    this.#options = options;
  }

  ended(entries: readonly ConnectionEntry[]): void {
    const { isWanted, onDropped } = this.#options;
    const wanted = entries.filter(isWanted);
    if (wanted.length === 0) return;
    const room = MAX_QUEUED - this.#entries.length;
    // Nothing may come after a gap before the reader knows of it.
    const kept = this.#missing > 0 ? [] : wanted.slice(0, room);
    this.#entries.push(...kept);
    const dropped = wanted.length - kept.length;
    if (dropped > 0) {
      this.#missing += dropped;
      onDropped(dropped);
    }
    this.#wake();
  }

  /** Whose they were is unknown. */
  lost(count: number): void {
    this.#missing += count;
    this.#wake();
  }

  /** The first piece comes at once, and an empty one when there is nothing for a while. Ends when aborted. */
  async *pieces(signal: AbortSignal): AsyncGenerator<TailPiece> {
    const { clock } = this.#options;
    yield { entries: [], missing: 0 };
    while (!signal.aborted) {
      if (this.#entries.length === 0 && this.#missing === 0) await this.#something(clock, signal);
      if (signal.aborted) return;
      if (this.#entries.length > 0) {
        yield { entries: this.#entries.splice(0, ENTRIES_PER_PIECE), missing: 0 };
        continue;
      }
      const missing = this.#missing;
      this.#missing = 0;
      yield { entries: [], missing };
    }
  }

  async #something(clock: Clock, signal: AbortSignal): Promise<void> {
    const come = new AbortController();
    this.#wake = () => come.abort();
    await sleep(SIGN_OF_LIFE_MS, clock, AbortSignal.any([come.signal, signal]));
    this.#wake = () => {};
  }
}
