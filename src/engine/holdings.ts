/**
 * Each worker's numbers of one namespace: descriptors, UDP flows, bytes of datagrams that it keeps, and bytes of
 * streams that stall.
 */
const WORDS = { descriptors: 0, flows: 1, keptBytes: 2, stalledBytes: 3 } as const;
const WORDS_OF_WORKER = 4;

/** What one namespace holds. Each worker writes its own numbers and adds up all, so no lock is needed. */
export class Holding {
  readonly #cells: Int32Array;
  readonly #own: number;

  constructor(cells: SharedArrayBuffer, worker: number) {
    this.#cells = new Int32Array(cells);
    this.#own = worker * WORDS_OF_WORKER;
  }

  add(amount: number, what: keyof typeof WORDS = 'descriptors'): void {
    const at = this.#own + WORDS[what];
    this.#cells[at] = (this.#cells[at] as number) + amount;
  }

  /** Descriptors. */
  get total(): number {
    return this.#sum(WORDS.descriptors);
  }

  get flows(): number {
    return this.#sum(WORDS.flows);
  }

  /** Those of this worker. */
  get keptBytes(): number {
    return this.#cells[this.#own + WORDS.keptBytes] as number;
  }

  /** The same. */
  get stalledBytes(): number {
    return this.#cells[this.#own + WORDS.stalledBytes] as number;
  }

  #sum(word: number): number {
    let sum = 0;
    for (let at = word; at < this.#cells.length; at += WORDS_OF_WORKER) sum += this.#cells[at] as number;
    return sum;
  }
}

/** Memory for as many workers. */
export function holdingCells(workers: number): SharedArrayBuffer {
  return new SharedArrayBuffer(workers * WORDS_OF_WORKER * 4);
}

interface Entry {
  readonly cells: SharedArrayBuffer;
  ports: number;
}

/**
 * The memory of every namespace's {@link Holding}. It stays until the last Service port is closed and the last
 * connection has ended: whoever makes a Service anew does not begin with nothing.
 */
export class Holdings {
  readonly #workers: number;
  readonly #entries = new Map<string, Entry>();
  /** Namespaces without a Service port. */
  readonly #left = new Set<string>();

  constructor(workers: number) {
    this.#workers = workers;
  }

  /** A Service port of the namespace opens. Ends with {@link leave}. */
  join(namespace: string): SharedArrayBuffer {
    let entry = this.#entries.get(namespace);
    if (entry === undefined) {
      this.#forgetEmpty();
      entry = { cells: holdingCells(this.#workers), ports: 0 };
      this.#entries.set(namespace, entry);
    }
    this.#left.delete(namespace);
    entry.ports++;
    return entry.cells;
  }

  leave(namespace: string): void {
    const entry = this.#entries.get(namespace);
    if (entry !== undefined && --entry.ports === 0) this.#left.add(namespace);
  }

  /** The worker has died, and all that it held is closed. */
  clear(worker: number): void {
    const [from, to] = [worker * WORDS_OF_WORKER, (worker + 1) * WORDS_OF_WORKER];
    for (const { cells } of this.#entries.values()) new Int32Array(cells).fill(0, from, to);
  }

  #forgetEmpty(): void {
    for (const namespace of this.#left) {
      const { cells } = this.#entries.get(namespace) as Entry;
      if (new Holding(cells, 0).total !== 0) continue;
      this.#entries.delete(namespace);
      this.#left.delete(namespace);
    }
  }
}
