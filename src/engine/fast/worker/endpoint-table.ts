import { COUNTERS } from '../../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../../model/endpoint.ts';
import type { Picker } from '../../../services/picker.ts';
import type { Memory } from '../../../sys/memory.ts';
import { encodeSocketAddress, familyOfText } from '../../../sys/socket-address.ts';
import { COUNTERS_BYTES, type CountedBackends, countedEndpoints } from './protocol.ts';

/** One endpoint of one Service port, ready to be dialled. */
export class Target {
  readonly endpoint: Endpoint;
  readonly name: string;
  /** Shared with the main thread, as long as the endpoint is in either list. Afterwards nobody reads them any more. */
  readonly counters: Float64Array;
  #address: Memory | undefined;

  constructor(endpoint: Endpoint, counters: Float64Array) {
    this.endpoint = endpoint;
    this.name = endpointName(endpoint);
    this.counters = counters;
  }

  /** For the same endpoint, as another object. */
  as(endpoint: Endpoint): Target {
    return endpoint === this.endpoint ? this : new Target(endpoint, this.counters);
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

/** One for all ports: hardly any has one that drains. */
const NONE: ReadonlyMap<string, Target> = new Map();

/** What the worker knows of each endpoint that the picker may give, and of those that are draining. */
export class EndpointTable {
  readonly #picker: Picker;
  readonly #onUnknown: (name: string) => void;
  readonly #targets = new Map<Endpoint, Target>();
  /** By name. For the endpoint is another object to the picker when it comes back. */
  #draining = NONE;

  /** `onUnknown`: see {@link target}. */
  constructor(picker: Picker, onUnknown: (name: string) => void) {
    this.#picker = picker;
    this.#onUnknown = onUnknown;
  }

  update(backends: CountedBackends): void {
    const { endpoints, draining = [] } = backends;
    const hasChanged = this.#picker.update(backends);
    if (!hasChanged && draining.length === 0 && this.#draining.size === 0) return;
    const known = this.#takeFormer();
    for (const target of freshTargets(backends)) known.set(target.name, target);
    for (const endpoint of endpoints) {
      // The picker keeps the object that it knows already.
      if (!this.#picker.has(endpoint)) continue;
      const target = known.get(endpointName(endpoint));
      if (target !== undefined) this.#targets.set(endpoint, target.as(endpoint));
    }
    this.#draining = draining.length === 0 ? NONE : those(draining, known);
  }

  /**
   * Of an endpoint that a pick has given. One that no update has brought would be a fault of this program: it is served
   * without counters and reported, since an error here would end the worker with all its connections.
   */
  target(endpoint: Endpoint): Target {
    const known = this.#targets.get(endpoint);
    if (known !== undefined) return known;
    const target = uncounted(endpoint);
    this.#targets.set(endpoint, target);
    this.#onUnknown(target.name);
    return target;
  }

  /** Finds endpoints that another process had connections to; the set may have lost some of them since. */
  finder(): (endpoint: Endpoint) => Target {
    const current = Array.from(this.#targets.values(), (target) => [target.name, target] as const);
    const targets = new Map([...this.#draining, ...current]);
    return (endpoint) => {
      const name = endpointName(endpoint);
      const target = targets.get(name) ?? uncounted(endpoint);
      targets.set(name, target);
      return target;
    };
  }

  /** By name: those that were draining, and those that the picker gives no longer, which leave the table. */
  #takeFormer(): Map<string, Target> {
    const former = new Map(this.#draining);
    for (const [endpoint, target] of this.#targets) {
      if (this.#picker.has(endpoint)) continue;
      this.#targets.delete(endpoint);
      former.set(target.name, target);
    }
    return former;
  }
}

function uncounted(endpoint: Endpoint): Target {
  return new Target(endpoint, new Float64Array(COUNTERS.length));
}

function those(endpoints: readonly Endpoint[], known: ReadonlyMap<string, Target>): ReadonlyMap<string, Target> {
  const targets = endpoints.flatMap((endpoint) => known.get(endpointName(endpoint)) ?? []);
  return new Map(targets.map((target) => [target.name, target]));
}

function freshTargets(backends: CountedBackends): readonly Target[] {
  const { memory, offset } = backends.counters;
  const counted = countedEndpoints(backends);
  return backends.fresh.map((index, block) => {
    const counters = new Float64Array(memory, offset + block * COUNTERS_BYTES, COUNTERS.length);
    return new Target(counted[index] as Endpoint, counters);
  });
}
