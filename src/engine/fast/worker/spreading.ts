import { type Spread, STATUS, STATUS_WORDS } from './protocol.ts';
import type { ToldIdleCores } from './told-idle-cores.ts';

/** Over so long a worker looks at how busy it was. */
const WINDOW_MS = 25;

/** A worker that waits for events less than this is busy. */
const BUSY = 0.15;

/** A worker that waits for this much of the time can take more. */
const IDLE = 0.4;

/**
 * Others help only while the machine has so many cores to spare. Where all are busy a second worker adds nothing, and
 * costs: a short connection was half as dear again for its messages, a stream lost a tenth, and a datagram cost twice
 * as much, because two workers find less to do at a time than one.
 */
const SPARE_CORES = 0.5;
export const SPARE_LOOK_MS = 1000;

/**
 * So many windows of a busy worker must have had a core to spare, more than had none, until others help with all they
 * can: what has moved does not come back.
 */
const SPARE_WINDOWS = 20;

interface SpreadingSetup {
  readonly index: number;
  readonly workers: number;
  /** Of all workers. */
  readonly status: SharedArrayBuffer;
  readonly spread: Spread;
  readonly idleCores: Pick<ToldIdleCores, 'at'>;
}

/**
 * Decides when a worker passes connections on, and to whom. A worker that has time to wait for events passes nothing
 * on. One that has not, shares with those that have, and evens out its open connections with those that have not.
 *
 * Waiting is what counts, not the processor's time: a worker that the kernel does not let run is busy, too.
 */
export class Spreading {
  readonly #index: number;
  readonly #status: Int32Array;
  readonly #spread: Spread;
  readonly #others: readonly number[];
  readonly #idleCores: Pick<ToldIdleCores, 'at'>;
  #beganMs = 0;
  #waitedMs = 0;
  #turns = 0;
  /** By worker: turns of this one that found it waiting. */
  readonly #waiting: Int32Array;
  /** By worker: its turns at the last look. */
  readonly #turnsBefore: Int32Array;
  #active = 0;
  /** Counts windows, so that a connection is counted once in each. */
  window = 0;
  /** Others that can take more. */
  #takers: readonly number[] = [];
  #next = 0;
  /** How many connections may still move in this window. */
  #quota = 0;
  #clients = 0;
  #spareWindows = 0;
  #isHeld = false;

  constructor({ index, workers, status, spread, idleCores }: SpreadingSetup) {
    this.#index = index;
    this.#status = new Int32Array(status);
    this.#spread = spread;
    this.#idleCores = idleCores;
    this.#others = Array.from({ length: workers }, (_, worker) => worker).filter((worker) => worker !== index);
    this.#waiting = new Int32Array(workers);
    this.#turnsBefore = new Int32Array(workers);
  }

  /** Passes nothing on until {@link resume}. */
  hold(): void {
    this.#isHeld = true;
  }

  resume(): void {
    this.#isHeld = false;
  }

  /** A turn begins that has waited so long for its events. */
  turn(nowMs: number, waitedMs: number): void {
    if (this.#others.length === 0) return;
    this.#waitedMs += waitedMs;
    this.#turns++;
    // Most turns of a worker with little to do need not know.
    if (waitedMs < WINDOW_MS) for (const other of this.#others) this.#sample(other);
    const lastedMs = nowMs - this.#beganMs;
    if (lastedMs >= WINDOW_MS) this.#decide(nowMs, lastedMs);
  }

  /** Counts a connection that has an event. `window`: when it was counted last. Returns what it must remember. */
  count(window: number): number {
    if (window !== this.window) this.#active++;
    return this.window;
  }

  /** Which worker is to carry a new client; `undefined`: this one. */
  forClient(carriers: readonly number[]): number | undefined {
    if (this.#isHeld || carriers.length === 0) return undefined;
    if (this.#spread !== 'when-busy') return this.#clients++ % 2 === 0 ? this.#take(carriers) : undefined;
    if (this.#spareWindows === 0) return undefined;
    this.#clients += ((this.#spareWindows / SPARE_WINDOWS) * this.#others.length) / (this.#others.length + 1);
    if (this.#clients < 1) return undefined;
    this.#clients--;
    return this.#takeOfTakers(carriers);
  }

  /** Whether some connection could move, if its port had carriers. */
  get wants(): boolean {
    return (this.#spread !== 'when-busy' || this.#quota > 0 || this.#spareWindows > 0) && !this.#isHeld;
  }

  /** Whether all that can move does, also what is not worth it. For tests. */
  get isEager(): boolean {
    return this.#spread === 'always';
  }

  /** Which worker is to carry an open connection from now on; `undefined`: this one. */
  forConnection(carriers: readonly number[]): number | undefined {
    if (this.#isHeld) return undefined;
    if (this.#spread === 'always') return this.#take(carriers);
    if (this.#spread === 'clients' || this.#quota === 0) return undefined;
    const taker = this.#takeOfTakers(carriers);
    if (taker !== undefined) this.#quota--;
    return taker;
  }

  #takeOfTakers(carriers: readonly number[]): number | undefined {
    return this.#take(carriers.filter((each) => this.#takers.includes(each)));
  }

  #take(takers: readonly number[]): number | undefined {
    return takers[this.#next++ % takers.length];
  }

  #decide(nowMs: number, lastedMs: number): void {
    const isBusy = this.#waitedMs < lastedMs * BUSY;
    const active = this.#active;
    this.#status[this.#index * STATUS_WORDS + STATUS.activeConnections] = active;
    const idle = this.#others.filter((other) => (this.#waiting[other] as number) >= this.#turns * IDLE);
    const hasSpare = isBusy && idle.length > 0 && this.#idleCores.at(nowMs, SPARE_LOOK_MS) >= SPARE_CORES;
    this.#spareWindows = Math.min(SPARE_WINDOWS, Math.max(0, this.#spareWindows + (hasSpare ? 1 : -1)));
    if (!isBusy) {
      this.#takers = [];
      this.#quota = 0;
    } else if (idle.length > 0) {
      this.#takers = idle;
      this.#quota = this.#hasSpareCores ? Math.floor((active * idle.length) / (idle.length + 1)) : 0;
    } else {
      // All are busy: with the same number of connections each gets the same. One that does not turn may be stuck.
      const turning = this.#others.filter((other) => this.#turnsOf(other) !== this.#turnsBefore[other]);
      const least = turning.toSorted((a, b) => this.#activeOf(a) - this.#activeOf(b))[0];
      this.#takers = least === undefined ? [] : [least];
      this.#quota = least === undefined ? 0 : Math.max(0, Math.floor((active - this.#activeOf(least)) / 2));
    }
    for (const other of this.#others) this.#turnsBefore[other] = this.#turnsOf(other);
    this.#beganMs = nowMs;
    this.#waitedMs = 0;
    this.#turns = 0;
    this.#active = 0;
    this.#waiting.fill(0);
    this.window++;
  }

  get #hasSpareCores(): boolean {
    return this.#spareWindows === SPARE_WINDOWS;
  }

  #sample(worker: number): void {
    const isWaiting = this.#status[worker * STATUS_WORDS + STATUS.isWaiting] as number;
    this.#waiting[worker] = (this.#waiting[worker] as number) + isWaiting;
  }

  #turnsOf(worker: number): number {
    return this.#status[worker * STATUS_WORDS + STATUS.turns] as number;
  }

  #activeOf(worker: number): number {
    return this.#status[worker * STATUS_WORDS + STATUS.activeConnections] as number;
  }
}
