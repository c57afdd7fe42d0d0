import type { ConnectionEntry } from '../../../model/connection-log.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { EventLoop } from './event-loop.ts';
import { type Report, STATUS } from './protocol.ts';

/** A message costs more than all entries in it. */
const BATCH_MS = 20;
const BATCH = 256;

/** About 10 MB on their way to the main thread, and a second of the fastest worker. */
export const MAX_UNTAKEN = 16_384;

/**
 * Passes entries of the connection log to the main thread, in batches. When that thread is behind, entries are dropped
 * and counted: traffic never waits for them.
 */
export class ConnectionLog {
  readonly #deadline = new Deadline(this);
  readonly #loop: EventLoop;
  readonly #status: Int32Array;
  readonly #report: (report: Report) => void;
  #batch: ConnectionEntry[] = [];
  #lost = 0;
  /** Wraps around, as {@link STATUS.entriesTaken} does. */
  #sent: number;

  constructor(loop: EventLoop, status: Int32Array, report: (report: Report) => void) {
    this.#loop = loop;
    this.#status = status;
    this.#report = report;
    // A thread before this one may have sent some.
    this.#sent = this.#taken;
  }

  get isWanted(): boolean {
    return Atomics.load(this.#status, STATUS.entriesWanted) !== 0;
  }

  add(entry: ConnectionEntry): void {
    const untaken = (this.#sent - this.#taken) | 0;
    if (untaken + this.#batch.length >= MAX_UNTAKEN) this.#lost++;
    else this.#batch.push(entry);
    if (this.#batch.length >= BATCH) this.flush();
    else this.#flushLater();
  }

  lose(count: number): void {
    this.#lost += count;
    this.#flushLater();
  }

  onDue(): void {
    this.flush();
  }

  flush(): void {
    this.#deadline.cancel();
    const [entries, lost] = [this.#batch, this.#lost];
    if (entries.length === 0 && lost === 0) return;
    this.#batch = [];
    this.#lost = 0;
    this.#sent = (this.#sent + entries.length) | 0;
    this.#report({ kind: 'entries', entries, lost });
  }

  #flushLater(): void {
    if (!this.#deadline.isWaiting) this.#loop.chores.after(BATCH_MS).start(this.#deadline, this.#loop.nowMs);
  }

  get #taken(): number {
    return Atomics.load(this.#status, STATUS.entriesTaken);
  }
}
