import { type Backends, COUNTERS, type Counters, type EndpointStats, GAUGES } from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { COUNTER, countersOf } from '../core/target.ts';
import {
  COUNTERS_BYTES,
  type CountedBackends,
  type CounterBlocks,
  countedEndpoints,
  countersIn,
} from './worker/protocol.ts';

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

  /** Zeroed, and one after the other. */
  take(blocks: number): CounterBlocks {
    const bytes = blocks * COUNTERS_BYTES;
    if (this.#next + bytes > this.#memory.byteLength) {
      this.#memory = new SharedArrayBuffer(Math.max(blocks, BLOCKS_PER_SLAB) * COUNTERS_BYTES);
      this.#next = 0;
    }
    const offset = this.#next;
    this.#next += bytes;
    return { memory: this.#memory, offset };
  }
}

/** Service ports live long and endpoints do not, so they do not share slabs. */
export class CounterMemory {
  readonly ports = new CounterSlabs();
  readonly endpoints = new CounterSlabs();
}

interface EndpointCounters extends CounterBlocks {
  readonly endpoint: Endpoint;
}

/**
 * The counters of one Service port and of each of its endpoints, in memory that the worker writes and this thread
 * reads.
 */
export class PortCounters {
  readonly shared: CounterBlocks;
  readonly #memory: CounterMemory;
  /** A list, because it is searched only when the set changes, and there may be ten thousand ports. */
  #endpoints: readonly EndpointCounters[] = [];

  constructor(memory: CounterMemory) {
    this.#memory = memory;
    this.shared = memory.ports.take(1);
  }

  read(): Counters {
    return countersOf(countersIn(this.shared));
  }

  get active(): number {
    return countersIn(this.shared)[COUNTER.active] ?? 0;
  }

  readEndpoints(): readonly EndpointStats[] {
    return this.#endpoints.map((own) => ({ endpoint: own.endpoint, counters: countersOf(countersIn(own)) }));
  }

  /**
   * Counts for the endpoints of `backends` from now on. Endpoints that stay, in the set or draining, keep their counts.
   */
  follow(backends: Backends): CountedBackends {
    return this.#share(backends, byName(this.#endpoints));
  }

  /** Continues the counts of another process. The worker counts gauges anew. */
  resume(backends: Backends, port: Partial<Counters>, endpoints: ReadonlyMap<string, Partial<Counters>>) {
    const counted = this.follow(backends);
    write(this.shared, port);
    for (const own of this.#endpoints) write(own, endpoints.get(endpointName(own.endpoint)));
    return counted;
  }

  /** The worker died with its connections: the new one continues the counts, in fresh memory. */
  inherit(backends: Backends): CountedBackends {
    const before = byName(this.#endpoints);
    const counted = this.#share(backends, new Map());
    for (const own of this.#endpoints) {
      const predecessor = before.get(endpointName(own.endpoint));
      if (predecessor !== undefined) countersIn(own).set(countersIn(predecessor));
      clearGauges(own);
    }
    clearGauges(this.shared);
    return counted;
  }

  #share(backends: Backends, known: ReadonlyMap<string, EndpointCounters>): CountedBackends {
    const endpoints = new Map<string, EndpointCounters | undefined>();
    const fresh: number[] = [];
    const counted = countedEndpoints(backends);
    counted.forEach((endpoint, index) => {
      const name = endpointName(endpoint);
      if (endpoints.has(name)) return;
      const own = known.get(name);
      endpoints.set(name, own);
      if (own === undefined) fresh.push(index);
    });
    const counters = this.#memory.endpoints.take(fresh.length);
    fresh.forEach((index, block) => {
      const endpoint = counted[index] as Endpoint;
      const offset = counters.offset + block * COUNTERS_BYTES;
      endpoints.set(endpointName(endpoint), { endpoint, memory: counters.memory, offset });
    });
    this.#endpoints = Array.from(endpoints.values() as Iterable<EndpointCounters>);
    return { ...backends, fresh, counters };
  }
}

/** Of one Service port, whose connections several workers count. */
export function sumOf(all: readonly PortCounters[]): Counters {
  const sum = (all[0] as PortCounters).read();
  for (const each of all.slice(1)) addTo(sum, each.read());
  return sum;
}

/** The same for each endpoint. */
export function endpointSums(all: readonly PortCounters[]): readonly EndpointStats[] {
  const sums = (all[0] as PortCounters).readEndpoints();
  if (all.length === 1) return sums;
  const known = new Map(sums.map(({ endpoint, counters }) => [endpointName(endpoint), counters]));
  for (const each of all.slice(1)) {
    for (const { endpoint, counters } of each.readEndpoints()) {
      const sum = known.get(endpointName(endpoint));
      if (sum !== undefined) addTo(sum, counters);
    }
  }
  return sums;
}

function addTo(sum: Counters, counters: Readonly<Counters>): void {
  for (const name of COUNTERS) sum[name] += counters[name];
}

function byName(endpoints: readonly EndpointCounters[]): ReadonlyMap<string, EndpointCounters> {
  return new Map(endpoints.map((each) => [endpointName(each.endpoint), each]));
}

/** A worker counts them anew. */
function clearGauges(block: CounterBlocks): void {
  for (const name of GAUGES) countersIn(block)[COUNTER[name]] = 0;
}

function write(block: CounterBlocks, counters: Partial<Counters> | undefined): void {
  const into = countersIn(block);
  for (const name of COUNTERS) into[COUNTER[name]] = GAUGES.has(name) ? 0 : (counters?.[name] ?? 0);
}
