/** What one namespace holds. Each worker writes its own number and adds up all, so no lock is needed. */
export class Holding {
  readonly #cells: Int32Array;
  readonly #worker: number;

  constructor(cells: SharedArrayBuffer, worker: number) {
    this.#cells = new Int32Array(cells);
    this.#worker = worker;
  }

  add(amount: number): void {
    this.#cells[this.#worker] = (this.#cells[this.#worker] as number) + amount;
  }

  get total(): number {
    let total = 0;
    for (const held of this.#cells) total += held;
    return total;
  }
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
      entry = { cells: new SharedArrayBuffer(this.#workers * 4), ports: 0 };
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
    for (const { cells } of this.#entries.values()) new Int32Array(cells)[worker] = 0;
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
