import { COUNTERS } from '../../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../../model/endpoint.ts';
import { Picker } from '../../../services/picker.ts';
import type { Memory } from '../../../sys/memory.ts';
import { encodeSocketAddress, familyOfText } from '../../../sys/socket-address.ts';
import { COUNTERS_BYTES, type CountedBackends, countedEndpoints } from './protocol.ts';

/** One endpoint of one Service port, ready to be dialled. */
export class Target {
  readonly endpoint: Endpoint;
  readonly name: string;
  /** Shared with the main thread while the endpoint is in the set or draining. After that nobody reads them. */
  readonly counters: Float64Array;
  #address: Memory | undefined;

  constructor(endpoint: Endpoint, counters: Float64Array = new Float64Array(COUNTERS.length)) {
    this.endpoint = endpoint;
    this.name = endpointName(endpoint);
    this.counters = counters;
  }

  /** The same endpoint and counters, with another object for the endpoint. */
  as(endpoint: Endpoint): Target {
    return endpoint === this.endpoint ? this : new Target(endpoint, this.counters);
  }

  get family(): number {
    return familyOfText(this.endpoint.address);
  }

  /** Made at the first use: of ten thousand Services, most are not used on this node. */
  get address(): Memory {
    this.#address ??= encodeSocketAddress(this.endpoint.address, this.endpoint.port);
    return this.#address;
  }
}

/** One for all ports: few have a draining endpoint. */
const NONE: ReadonlyMap<string, Target> = new Map();

/** The endpoints of one Service port, draining ones too: the picker, and each one's address and counters. */
export class Endpoints {
  readonly picker: Picker;
  readonly #onUnknown: (name: string) => void;
  readonly #targets = new Map<Endpoint, Target>();
  /** By name: an endpoint that comes back is another object to the picker. */
  #draining = NONE;

  /** `onUnknown`: see {@link target}. */
  constructor({ onUnknown, ...options }: ConstructorParameters<typeof Picker>[0] & { onUnknown(name: string): void }) {
    this.picker = new Picker(options);
    this.#onUnknown = onUnknown;
  }

  update(backends: CountedBackends): void {
    const { endpoints, draining = [] } = backends;
    const hasChanged = this.picker.update(backends);
    if (!hasChanged && draining.length === 0 && this.#draining.size === 0) return;
    const known = this.#takeFormer();
    for (const target of freshTargets(backends)) known.set(target.name, target);
    for (const endpoint of endpoints) {
      // The picker keeps the objects that it has.
      if (!this.picker.has(endpoint)) continue;
      const target = known.get(endpointName(endpoint));
      if (target !== undefined) this.#targets.set(endpoint, target.as(endpoint));
    }
    const stay = draining.flatMap((endpoint) => known.get(endpointName(endpoint)) ?? []);
    this.#draining = stay.length === 0 ? NONE : byName(stay);
  }

  /**
   * `endpoint`: from a pick. If no update has brought it, this program has a bug. An error would end the worker with
   * all its connections, so the endpoint is reported and used without counters.
   */
  target(endpoint: Endpoint): Target {
    const known = this.#targets.get(endpoint);
    if (known !== undefined) return known;
    const target = new Target(endpoint);
    this.#targets.set(endpoint, target);
    this.#onUnknown(target.name);
    return target;
  }

  /** Finds endpoints that another process had connections to. Some may have left the set since. */
  finder(): (endpoint: Endpoint) => Target {
    const targets = new Map([...this.#draining, ...byName([...this.#targets.values()])]);
    return (endpoint) => {
      const name = endpointName(endpoint);
      const target = targets.get(name) ?? new Target(endpoint);
      targets.set(name, target);
      return target;
    };
  }

  /** The targets that were draining, and those that left the picker's set, which leave the table. */
  #takeFormer(): Map<string, Target> {
    const former = new Map(this.#draining);
    for (const [endpoint, target] of this.#targets) {
      if (this.picker.has(endpoint)) continue;
      this.#targets.delete(endpoint);
      former.set(target.name, target);
    }
    return former;
  }
}

function byName(targets: readonly Target[]): ReadonlyMap<string, Target> {
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
