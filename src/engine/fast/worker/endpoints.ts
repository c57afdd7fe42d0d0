import { COUNTERS } from '../../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../../model/endpoint.ts';
import { Member } from '../../../services/member.ts';
import { Picker } from '../../../services/picker.ts';
import type { Memory } from '../../../sys/memory.ts';
import { AF_INET6 } from '../../../sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../../../sys/socket-address.ts';
import { Guess } from './guess.ts';
import type { SocketKind } from './parked-sockets.ts';
import { COUNTER, COUNTERS_BYTES, type CountedBackends, countedEndpoints } from './protocol.ts';

/** One endpoint of one Service port, ready to be dialled. */
export class Target {
  readonly member: Member;
  /** Shared with the main thread while the endpoint is in the set or draining. After that nobody reads them. */
  readonly counters: Float64Array;
  /** The handshake ends within `connect`: it is on this node. */
  readonly answersAtOnce = new Guess();
  #address: Memory | undefined;

  constructor(member: Member, counters: Float64Array = new Float64Array(COUNTERS.length)) {
    this.member = member;
    this.counters = counters;
  }

  get name(): string {
    return this.member.name;
  }

  get endpoint(): Endpoint {
    return this.member.endpoint;
  }

  get family(): number {
    return familyOfText(this.endpoint.address);
  }

  /** Of sockets without an address of their own. */
  get tcpKind(): SocketKind {
    return this.family === AF_INET6 ? 'TCP6' : 'TCP';
  }

  get udpKind(): SocketKind {
    return this.family === AF_INET6 ? 'UDP6' : 'UDP';
  }

  /** Made at the first use: of ten thousand Services, most are not used on this node. */
  get address(): Memory {
    this.#address ??= encodeSocketAddress(this.endpoint.address, this.endpoint.port);
    return this.#address;
  }
}

/** The endpoints of one Service port, draining ones too: the picker, and each one's address and counters. */
export class Endpoints {
  readonly picker: Picker;
  readonly #onUnknown: (name: string) => void;
  readonly #targets = new Map<Member, Target>();
  /** Not in the set, by name; until the next update. */
  readonly #strays = new Map<string, Member>();

  /** `onUnknown`: see {@link target}. */
  constructor({ onUnknown, ...options }: ConstructorParameters<typeof Picker>[0] & { onUnknown(name: string): void }) {
    this.picker = new Picker(options);
    this.#onUnknown = onUnknown;
  }

  update(backends: CountedBackends, nowMs: number): void {
    this.picker.update(backends, nowMs);
    this.#strays.clear();
    const { pool } = this.picker;
    for (const member of this.#targets.keys()) if (pool.find(member.name) !== member) this.#targets.delete(member);
    for (const { name, counters } of freshCounters(backends)) {
      const member = pool.find(name);
      if (member !== undefined) this.#targets.set(member, new Target(member, counters));
    }
  }

  /** In the gauge of each. */
  showEjected(): void {
    for (const { member, counters } of this.#targets.values()) {
      counters[COUNTER.ejected] = this.picker.isEjected(member) ? 1 : 0;
    }
  }

  /**
   * `member`: from a pick. If no update has brought it, this program has a bug. An error would end the worker with
   * all its connections, so the endpoint is reported and used without counters.
   */
  target(member: Member): Target {
    const known = this.#targets.get(member);
    if (known !== undefined) return known;
    const target = new Target(member);
    this.#targets.set(member, target);
    this.#onUnknown(target.name);
    return target;
  }

  /** That of an endpoint which another worker has picked. It may have left the set since, or not have come yet. */
  at(endpoint: Endpoint): Target {
    const name = endpointName(endpoint);
    const member = this.picker.pool.find(name) ?? this.#strays.get(name) ?? new Member(endpoint, name);
    const known = this.#targets.get(member);
    if (known !== undefined) return known;
    const target = new Target(member);
    this.#targets.set(member, target);
    this.#strays.set(name, member);
    return target;
  }

  /** Whether it is in the set or draining. */
  has({ name }: Target): boolean {
    return this.picker.pool.find(name) !== undefined;
  }

  /** Finds endpoints that another process had connections to. Some may have left the set since. */
  finder(): (endpoint: Endpoint) => Target {
    const targets = new Map(Array.from(this.#targets.values(), (target) => [target.name, target]));
    return (endpoint) => {
      const name = endpointName(endpoint);
      const target = targets.get(name) ?? new Target(new Member(endpoint, name));
      targets.set(name, target);
      return target;
    };
  }
}

function freshCounters(backends: CountedBackends) {
  const { memory, offset } = backends.counters;
  const counted = countedEndpoints(backends);
  return backends.fresh.map((index, block) => ({
    name: endpointName(counted[index] as Endpoint),
    counters: new Float64Array(memory, offset + block * COUNTERS_BYTES, COUNTERS.length),
  }));
}
