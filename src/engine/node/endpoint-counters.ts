import type { Backends, Counters, EndpointStats } from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { newCounters } from './new-counters.ts';

/** The counters of each endpoint of one Service port, in the set or draining. */
export class EndpointCounters {
  #byName: ReadonlyMap<string, EndpointStats & { readonly counters: Counters }> = new Map();

  /** Those that stay, in either list, go on counting. */
  follow({ endpoints, draining = [] }: Backends): void {
    const before = this.#byName;
    this.#byName = new Map(
      [...endpoints, ...draining].map((endpoint) => {
        const name = endpointName(endpoint);
        return [name, before.get(name) ?? { endpoint, counters: newCounters() }];
      }),
    );
  }

  /** In either list. */
  has(endpoint: Endpoint): boolean {
    return this.#byName.has(endpointName(endpoint));
  }

  /** To count in. Nobody reads what is counted for an endpoint that has gone. */
  of(endpoint: Endpoint): Counters {
    return this.#byName.get(endpointName(endpoint))?.counters ?? newCounters();
  }

  read(): readonly EndpointStats[] {
    return Array.from(this.#byName.values(), ({ endpoint, counters }) => ({ endpoint, counters: { ...counters } }));
  }
}
