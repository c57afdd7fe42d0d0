import { COUNTERS } from '../contracts/data-plane.ts';
import type { Endpoint } from '../model/endpoint.ts';
import { endpointName } from '../model/endpoint.ts';
import type { Picker } from '../picker/picker.ts';
import type { Memory } from '../sys/memory.ts';
import { encodeSocketAddress, familyOfText } from '../sys/socket-address.ts';
import { COUNTERS_BYTES, type CountedBackends } from './protocol.ts';

/** One endpoint of one Service port, ready to be dialled. */
export class Target {
  readonly endpoint: Endpoint;
  readonly name: string;
  /** Shared with the main thread, as long as the endpoint is in the set. Afterwards nobody reads them any more. */
  readonly counters: Float64Array;
  #address: Memory | undefined;

  constructor(endpoint: Endpoint, counters: Float64Array) {
    this.endpoint = endpoint;
    this.name = endpointName(endpoint);
    this.counters = counters;
  }

  get family(): number {
    return familyOfText(this.endpoint.address);
  }

  /** Made when it is wanted: of ten thousand Services, most are not used on this node. */
  get address(): Memory {
    this.#address ??= encodeSocketAddress(this.endpoint.address, this.endpoint.port);
    return this.#address;
  }
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
    const { memory, offset } = backends.counters;
    backends.fresh.forEach((index, block) => {
      const endpoint = backends.endpoints[index];
      if (endpoint === undefined) return;
      const counters = new Float64Array(memory, offset + block * COUNTERS_BYTES, COUNTERS.length);
      this.#targets.set(endpoint, new Target(endpoint, counters));
    });
    return true;
  }

  /** Of an endpoint that a pick has given. */
  target(endpoint: Endpoint): Target {
    const target = this.#targets.get(endpoint);
    if (target === undefined) throw new Error(`the picker gave an unknown endpoint, ${endpointName(endpoint)}`);
    return target;
  }

  /** Finds endpoints that another process had connections to; the set may have lost some of them since. */
  finder(): (endpoint: Endpoint) => Target {
    const targets = new Map(Array.from(this.#targets.values(), (target) => [target.name, target]));
    return (endpoint) => {
      const name = endpointName(endpoint);
      const target = targets.get(name) ?? new Target(endpoint, new Float64Array(COUNTERS.length));
      targets.set(name, target);
      return target;
    };
  }
}
