import type { Endpoint } from '../model/endpoint.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Picker } from '../picker/picker.ts';
import type { Memory } from '../sys/memory.ts';
import { encodeSocketAddress, familyOfText } from '../sys/socket-address.ts';
import { COUNTERS_BYTES, type CountedBackends } from './protocol.ts';

/** One endpoint of one Service port, ready to be dialled. */
export interface Target {
  readonly endpoint: Endpoint;
  readonly name: string;
  readonly family: number;
  readonly address: Memory;
  /** Shared with the main thread, as long as the endpoint is in the set. Afterwards nobody reads them any more. */
  readonly counters: Float64Array;
}

/** What the worker knows of each endpoint that the picker may give. */
export class EndpointTable {
  readonly #picker: Picker;
  readonly #targets = new Map<Endpoint, Target>();

  constructor(picker: Picker) {
    this.#picker = picker;
  }

  /** Says whether the set changed. */
  update(backends: CountedBackends): boolean {
    const hasChanged = this.#picker.update(backends);
    if (!hasChanged) return false;
    for (const endpoint of this.#targets.keys()) if (!this.#picker.has(endpoint)) this.#targets.delete(endpoint);
    backends.fresh.forEach((index, block) => {
      const endpoint = backends.endpoints[index];
      if (endpoint === undefined) return;
      this.#targets.set(endpoint, {
        endpoint,
        name: endpointName(endpoint),
        family: familyOfText(endpoint.address),
        address: encodeSocketAddress(endpoint.address, endpoint.port),
        counters: new Float64Array(backends.counters, block * COUNTERS_BYTES, COUNTERS_BYTES / 8),
      });
    });
    return true;
  }

  /** Of an endpoint that a pick has given. */
  target(endpoint: Endpoint): Target {
    const target = this.#targets.get(endpoint);
    if (target === undefined) throw new Error(`the picker gave an unknown endpoint, ${endpointName(endpoint)}`);
    return target;
  }
}
