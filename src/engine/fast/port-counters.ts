import { type Backends, COUNTERS, type Counters, type EndpointStats, GAUGES } from '../../model/data-plane.ts';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import { COUNTER, countersOf } from '../core/target.ts';
import { COUNTERS_BYTES, type CountedBackends, type CounterBlock, countersIn } from './worker/protocol.ts';

/** About a page of memory. */
const BLOCKS_PER_SLAB = 32;

/**
 * Gives out memory for counters, many blocks from one allocation, because an allocation costs several times the size of
 * a block. No block is given out twice: its last connection may still count in it. A slab is freed when neither thread
 * holds any of its blocks, so only blocks of a similar lifetime should share one.
 */
export class CounterSlabs {
  #memory = new SharedArrayBuffer(0);
  #next = 0;

  /** Zeroed. */
  take(): CounterBlock {
    if (this.#next === this.#memory.byteLength) {
      this.#memory = new SharedArrayBuffer(BLOCKS_PER_SLAB * COUNTERS_BYTES);
      this.#next = 0;
    }
    const offset = this.#next;
    this.#next += COUNTERS_BYTES;
    return { memory: this.#memory, offset };
  }
}

/** Service ports live long and endpoints do not, so they do not share slabs. */
export class CounterMemory {
  readonly ports = new CounterSlabs();
  readonly endpoints = new CounterSlabs();
}

interface EndpointCounters extends CounterBlock {
  readonly endpoint: NamedEndpoint;
}

/**
 * The counters of one Service port and of each of its endpoints, in memory that the worker writes and this thread
 * reads.
 */
export class PortCounters {
  readonly shared: CounterBlock;
  readonly #memory: CounterMemory;
  /** A list, because it is searched only when the set changes, and there may be ten thousand ports. */
  #endpoints: readonly EndpointCounters[] = [];

  constructor(memory: CounterMemory) {
    this.#memory = memory;
    this.shared = memory.ports.take();
  }

  read(): Readonly<Counters> {
    return countersOf(countersIn(this.shared));
  }

  /** Connections, flows, and clients that wait for one. */
  get open(): number {
    const counters = countersIn(this.shared);
    return (counters[COUNTER.active] ?? 0) + (counters[COUNTER.waiting] ?? 0);
  }

  readEndpoints(): readonly EndpointStats[] {
    return this.#endpoints.map((own) => ({ endpoint: own.endpoint, counters: countersOf(countersIn(own)) }));
  }

  /**
   * Counts for the endpoints of `backends` from now on. Endpoints that stay, in the set or draining, keep their counts:
   * the end of old connections also counts at draining ones.
   */
  follow(backends: Backends): CountedBackends {
    const before = byName(this.#endpoints);
    const endpoints = new Map<string, EndpointCounters>();
    const counters = new Map<string, CounterBlock>();
    for (const endpoint of [...backends.endpoints, ...(backends.draining ?? [])]) {
      const { name } = endpoint;
      if (endpoints.has(name)) continue;
      let own = before.get(name);
      if (own === undefined) {
        const block = this.#memory.endpoints.take();
        counters.set(name, block);
        own = { endpoint, ...block };
      }
      endpoints.set(name, own);
    }
    this.#endpoints = [...endpoints.values()];
    return { ...backends, counters };
  }

  /** Continues the counts of another process. The worker counts gauges anew. */
  resume(backends: Backends, port: Partial<Counters>, endpoints: ReadonlyMap<string, Partial<Counters>>) {
    const counted = this.follow(backends);
    write(this.shared, port);
    for (const own of this.#endpoints) write(own, endpoints.get(own.endpoint.name));
    return counted;
  }

  /** The worker died with its connections: the new one continues the counts, in fresh memory. */
  inherit(backends: Backends): CountedBackends {
    const before = byName(this.#endpoints);
    this.#endpoints = [];
    const counted = this.follow(backends);
    for (const own of this.#endpoints) {
      const predecessor = before.get(own.endpoint.name);
      if (predecessor !== undefined) countersIn(own).set(countersIn(predecessor));
      clearGauges(own);
    }
    clearGauges(this.shared);
    return counted;
  }
}

/** Of one Service port, whose connections several workers count. */
export function sumOf(all: readonly PortCounters[]): Readonly<Counters> {
  return all.slice(1).reduce((sum, each) => sumOfTwo(sum, each.read()), (all[0] as PortCounters).read());
}

/** The same for each endpoint. */
export function endpointSums(all: readonly PortCounters[]): readonly EndpointStats[] {
  const sums = (all[0] as PortCounters).readEndpoints();
  if (all.length === 1) return sums;
  const known = new Map(sums.map((each) => [each.endpoint.name, each]));
  for (const each of all.slice(1)) {
    for (const { endpoint, counters } of each.readEndpoints()) {
      const sum = known.get(endpoint.name);
      if (sum !== undefined) known.set(endpoint.name, { ...sum, counters: sumOfTwo(sum.counters, counters) });
    }
  }
  return [...known.values()];
}

function sumOfTwo(one: Readonly<Counters>, other: Readonly<Counters>): Readonly<Counters> {
  const sum = { ...one };
  for (const name of COUNTERS) sum[name] += other[name];
  return sum;
}

function byName(endpoints: readonly EndpointCounters[]): ReadonlyMap<string, EndpointCounters> {
  return new Map(endpoints.map((each) => [each.endpoint.name, each]));
}

/** A worker counts them anew. */
function clearGauges(block: CounterBlock): void {
  for (const name of GAUGES) countersIn(block)[COUNTER[name]] = 0;
}

function write(block: CounterBlock, counters: Partial<Counters> | undefined): void {
  const into = countersIn(block);
  for (const name of COUNTERS) into[COUNTER[name]] = GAUGES.has(name) ? 0 : (counters?.[name] ?? 0);
}
