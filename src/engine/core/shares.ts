import type { DataPlaneOptions } from '../../model/data-plane.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { mayTakeMore } from '../../util/fair-share.ts';

/*
 * What namespaces share: each may take more while it has less than four times what is free (docs/adr/0031 and 0032).
 * A table of numbers says who has how much. It has a row for each thread and a column for each resource. There is one
 * such table of all namespaces together, and one of each. A thread writes only its own row, so no lock is needed.
 */

/** So many a client takes: its own and the endpoint's. Of the pipes of bulk there are few. */
export const DESCRIPTORS_OF: Readonly<Record<ProxiedProtocol, number>> = { TCP: 2, UDP: 1 };

/** Of a row: a cache line, so that threads do not slow each other down. */
const COLUMNS = 16;

/** While less than this part of a resource is free, it is scarce. */
const SCARCE_PART = 1 / 8;

interface Limits {
  /** Several resources with one column are the same thing, limited for different purposes. */
  readonly column: number;
  readonly max: number;
  /** By default as many as all. */
  readonly maxOfPort?: number;
  /** So many of them are not for this purpose, and at most {@link reservedPart} of what is free. */
  readonly reserve?: number;
  readonly reservedPart?: number;
  /**
   * How often a thread adds up what others have taken, which reads what other cores are writing. `never`: it is a
   * limit of each thread.
   */
  readonly addsUp: 'never' | 'each-turn' | 'each-time';
}

interface SharesSetup {
  /** See {@link ShareMemory.all}. */
  readonly taken: SharedArrayBuffer;
  /** The thread's. */
  readonly row: number;
  /** Missing in a thread that does not ask, or is alone. */
  readonly loop?: { readonly turns: number };
  readonly descriptorLimit: number;
  readonly options: Pick<DataPlaneOptions, 'udpMaxFlows' | 'udpMaxFlowsPerService'>;
}

export type Shares = Readonly<ReturnType<typeof createShares>>;

/** All that is shared, to one thread. */
export function createShares({ taken, row, loop = { turns: 0 }, descriptorLimit, options }: SharesSetup) {
  const all = new Share(taken, row);
  const limited = (limits: Limits) => new Resource(limits, all, loop);
  // As many are for logs, the API server and iptables.
  const reserve = Math.min(256, Math.ceil(descriptorLimit / 8));
  const descriptors = { column: 0, max: descriptorLimit - reserve, reserve, addsUp: 'each-turn' } as const;
  return {
    /**
     * For listeners and clients. The reserve is for the first UDP flows of a namespace, and for clients who still need
     * an endpoint. A connection or flow counts whole from the moment when a client is accepted.
     */
    descriptors: limited(descriptors),
    /** The same for new UDP flows. */
    flowDescriptors: limited({ ...descriptors, reservedPart: 7 / 8 }),
    flows: limited({
      column: 1,
      max: options.udpMaxFlows,
      maxOfPort: options.udpMaxFlowsPerService,
      addsUp: 'each-time',
    }),
    /** Of datagrams that wait for an answer, so that another endpoint can be asked, or for a flow. */
    datagramBytes: limited({ column: 2, max: 4 << 20, maxOfPort: 1 << 20, addsUp: 'never' }),
    /** Of streams: bytes that have been read, and whose receiver takes no more for now. */
    stalledBytes: limited({ column: 3, max: 32 << 20, addsUp: 'never' }),
  };
}

/** Something that is limited, as one thread sees it. */
export class Resource {
  readonly #column: number;
  readonly #max: number;
  readonly #maxOfPort: number;
  readonly #reserve: number;
  readonly #reservedPart: number;
  /** While more than this is free, no namespace can be at its limit: none has more than what is not free. */
  readonly #plenty: number;
  readonly #addsUp: Limits['addsUp'];
  readonly #all: Share;
  readonly #loop: { readonly turns: number };
  /** In which {@link #others} were added up. */
  #turn: number | undefined;
  #others = 0;

  constructor(limits: Limits, all: Share, loop: { readonly turns: number }) {
    this.#column = limits.column;
    this.#max = limits.max;
    this.#maxOfPort = limits.maxOfPort ?? limits.max;
    this.#reserve = limits.reserve ?? 0;
    this.#reservedPart = limits.reservedPart ?? 1;
    this.#plenty = this.#max / 2 + this.#reserve;
    this.#addsUp = limits.addsUp;
    this.#all = all;
    this.#loop = loop;
  }

  /** Takes as much, whatever the limits say. `share`: for whom, if that is one namespace. */
  take(amount: number, share?: Share): void {
    this.#all.add(this.#column, amount);
    share?.add(this.#column, amount);
  }

  give(amount: number, share?: Share): void {
    this.take(-amount, share);
  }

  /** False, and nothing taken, at a limit. */
  tryTake(amount: number, share: Share): boolean {
    const may = this.mayTake(share, amount);
    if (may) this.take(amount, share);
    return may;
  }

  /** See {@link limitOf}. */
  mayTake(share: Share, amount = 1, more = 0): boolean {
    return this.limitOf(share, amount, more) === undefined;
  }

  /** The limit that keeps the port of this share from taking as much, if any. `more`: if so many more were free. */
  limitOf(share: Share, amount = 1, more = 0): 'per-service' | 'per-namespace' | 'total' | undefined {
    if (share.ofPort(this.#column) + amount > this.#maxOfPort) return 'per-service';
    const free = this.#free + more;
    if (free > this.#plenty) return undefined;
    if (free < amount) return 'total';
    const others = this.#addsUp === 'never' ? 0 : share.others(this.#column);
    return mayTakeMore(share.own(this.#column) + others, this.#leftOf(free)) ? undefined : 'per-namespace';
  }

  /** Without the reserve. */
  get left(): number {
    return this.#leftOf(this.#free);
  }

  get isScarce(): boolean {
    return this.#free < this.#max * SCARCE_PART;
  }

  #leftOf(free: number): number {
    return free - Math.min(this.#reserve, free * this.#reservedPart);
  }

  get #free(): number {
    if (this.#addsUp !== 'never') {
      const { turns } = this.#loop;
      if (turns !== this.#turn || this.#addsUp === 'each-time') this.#others = this.#all.others(this.#column);
      this.#turn = turns;
    }
    return this.#max - this.#others - this.#all.own(this.#column);
  }
}

/** What one namespace has taken, to one of its Service ports in one thread; or what all namespaces have taken. */
export class Share {
  readonly #table: Int32Array;
  readonly #own: number;
  readonly #ofPort: number[] = new Array<number>(COLUMNS).fill(0);

  constructor(table: SharedArrayBuffer, row: number) {
    this.#table = new Int32Array(table);
    this.#own = row * COLUMNS;
  }

  add(column: number, amount: number): void {
    const at = this.#own + column;
    this.#table[at] = (this.#table[at] as number) + amount;
    this.#ofPort[column] = (this.#ofPort[column] as number) + amount;
  }

  /** Of the Service port in this thread. */
  ofPort(column: number): number {
    return this.#ofPort[column] as number;
  }

  /** Of this thread. */
  own(column: number): number {
    return this.#table[this.#own + column] as number;
  }

  /** Of all other threads. */
  others(column: number): number {
    let sum = 0;
    for (let row = 0; row < this.#table.length; row += COLUMNS) {
      if (row !== this.#own) sum += this.#table[row + column] as number;
    }
    return sum;
  }
}

/** A table of zeros. */
export function shareTable(threads: number): SharedArrayBuffer {
  return new SharedArrayBuffer(threads * COLUMNS * Int32Array.BYTES_PER_ELEMENT);
}

/**
 * The tables of all namespaces together and of each. One is kept until the last Service port of its namespace is closed
 * and the last connection has ended, so deleting and recreating a Service does not reset what its namespace has.
 */
export class ShareMemory {
  readonly all: SharedArrayBuffer;
  readonly #threads: number;
  readonly #tables = new Map<string, { readonly table: SharedArrayBuffer; ports: number }>();
  /** Namespaces without a Service port. */
  readonly #left = new Set<string>();

  constructor(threads: number) {
    this.#threads = threads;
    this.all = shareTable(threads);
  }

  /** A Service port of the namespace opens. Ends with {@link leave}. */
  join(namespace: string): SharedArrayBuffer {
    let entry = this.#tables.get(namespace);
    if (entry === undefined) {
      this.#forgetEmpty();
      entry = { table: shareTable(this.#threads), ports: 0 };
      this.#tables.set(namespace, entry);
    }
    this.#left.delete(namespace);
    entry.ports++;
    return entry.table;
  }

  leave(namespace: string): void {
    const entry = this.#tables.get(namespace);
    if (entry !== undefined && --entry.ports === 0) this.#left.add(namespace);
  }

  /** The thread has died, and all that it had is closed. */
  clear(row: number): void {
    const tables = [this.all, ...Array.from(this.#tables.values(), ({ table }) => table)];
    for (const table of tables) new Int32Array(table).fill(0, row * COLUMNS, (row + 1) * COLUMNS);
  }

  #forgetEmpty(): void {
    for (const namespace of this.#left) {
      const { table } = this.#tables.get(namespace) ?? {};
      if (table !== undefined && new Int32Array(table).some((amount) => amount !== 0)) continue;
      this.#tables.delete(namespace);
      this.#left.delete(namespace);
    }
  }
}
