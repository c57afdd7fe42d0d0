import { type Backends, COUNTERS, type Counters, type EndpointStats } from '../../contracts/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { COUNTER, COUNTERS_BYTES, type CountedBackends } from '../../worker/protocol.ts';

interface EndpointCounters {
  readonly endpoint: Endpoint;
  readonly counters: Float64Array;
}

/**
 * The counters of one Service port and of each of its endpoints, in memory that the worker writes and this thread reads.
 * A number is never torn: both machines write 64 aligned bits at once. Memory of endpoints that left is freed when
 * neither thread holds it any more, so there is no slot to give out or to take back.
 */
export class PortCounters {
  readonly shared = new SharedArrayBuffer(COUNTERS_BYTES);
  readonly #port = new Float64Array(this.shared);
  #endpoints: ReadonlyMap<string, EndpointCounters> = new Map();

  read(): Counters {
    return readCounters(this.#port);
  }

  readEndpoints(): readonly EndpointStats[] {
    return Array.from(this.#endpoints.values(), ({ endpoint, counters }) => ({
      endpoint,
      counters: readCounters(counters),
    }));
  }

  /** Counts for the endpoints of `backends` from now on; those that stay go on counting. */
  follow(backends: Backends): CountedBackends {
    return this.#share(backends, (name) => this.#endpoints.get(name));
  }

  /** The worker died, and its connections with it: its successor goes on counting, in fresh memory. */
  inherit(backends: Backends): CountedBackends {
    const before = this.#endpoints;
    const counted = this.#share(backends, () => undefined);
    for (const [name, { counters }] of this.#endpoints) {
      counters.set(before.get(name)?.counters ?? []);
      counters[COUNTER.active] = 0;
    }
    this.#port[COUNTER.active] = 0;
    return counted;
  }

  #share(backends: Backends, known: (name: string) => EndpointCounters | undefined): CountedBackends {
    const endpoints = new Map<string, EndpointCounters | undefined>();
    const fresh: number[] = [];
    backends.endpoints.forEach((endpoint, index) => {
      const name = endpointName(endpoint);
      if (endpoints.has(name)) return;
      const counted = known(name);
      endpoints.set(name, counted);
      if (counted === undefined) fresh.push(index);
    });
    const counters = new SharedArrayBuffer(fresh.length * COUNTERS_BYTES);
    fresh.forEach((index, block) => {
      const endpoint = backends.endpoints[index] as Endpoint;
      const own = new Float64Array(counters, block * COUNTERS_BYTES, COUNTERS.length);
      endpoints.set(endpointName(endpoint), { endpoint, counters: own });
    });
    this.#endpoints = endpoints as Map<string, EndpointCounters>;
    return { ...backends, fresh, counters };
  }
}

/** Thousands of times per scrape, so without building a list of entries first. */
function readCounters(from: Float64Array): Counters {
  const counters: Partial<Counters> = {};
  for (const name of COUNTERS) counters[name] = from[COUNTER[name]] ?? 0;
  return counters as Counters;
}
