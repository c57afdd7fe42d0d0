import type { Backends } from '../model/data-plane.ts';
import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { Random } from '../util/clock.ts';
import { Member } from './member.ts';

/** The endpoints of one listener: those in the set, and those that drain. */
export class Pool {
  readonly #random: Random;
  readonly #onLoad: (member: Member) => void;
  /** In the set or draining. */
  #byName: ReadonlyMap<string, Member> = new Map();
  #members: readonly Member[] = [];
  #hasBegun = false;

  /** `onLoad`: the open connections of a member of the set changed. */
  constructor(random: Random, onLoad: (member: Member) => void) {
    this.#random = random;
    this.#onLoad = onLoad;
  }

  /**
   * Those in the set, shuffled, so nodes with the same list begin with different endpoints (upstream
   * `pkg/proxy/userspace/roundrobin.go`, `shuffleEndpoints`).
   */
  get members(): readonly Member[] {
    return this.#members;
  }

  /** In the set or draining, by `endpointName`. */
  find(name: string): Member | undefined {
    return this.#byName.get(name);
  }

  /** In the set or draining. */
  all(): Iterable<Member> {
    return this.#byName.values();
  }

  /** The member of which this is the object, if it is still in the set. One that left and came back has another. */
  at(endpoint: Endpoint): Member | undefined {
    const member = this.#byName.get(endpointName(endpoint));
    return member?.endpoint === endpoint && member.position >= 0 ? member : undefined;
  }

  /** Returns what changed. Another order or duplicates are no change. */
  update(
    { endpoints, draining = [] }: Pick<Backends, 'endpoints' | 'draining'>,
    nowMs: number,
  ): 'set' | 'weights' | 'none' {
    const before = this.#byName;
    const byName = new Map<string, Member>();
    const known = (endpoint: Endpoint): Member => {
      const name = endpointName(endpoint);
      const member = byName.get(name) ?? before.get(name) ?? new Member(endpoint, name, this.#onLoad);
      byName.set(name, member);
      return member;
    };
    let change: 'weights' | 'none' = 'none';
    for (const endpoint of endpoints) {
      const member = known(endpoint);
      const { weight = 1 } = endpoint;
      if (member.weight !== weight) change = 'weights';
      member.weight = weight;
    }
    const members = [...byName.values()];
    draining.forEach(known);
    this.#byName = byName;

    const joined = members.filter(({ position }) => position < 0);
    if (joined.length === 0 && members.length === this.#members.length) return change;
    for (const member of joined) {
      const { address, port } = member.endpoint;
      member.endpoint = { address, port };
      if (this.#hasBegun) member.sinceMs = nowMs;
    }
    this.#hasBegun = true;
    shuffle(members, this.#random);
    this.#arrange(members);
    return 'set';
  }

  /** Puts the set into the order of another process. */
  restore(order: readonly Endpoint[]): void {
    const named = new Set(order.flatMap((endpoint) => this.find(endpointName(endpoint)) ?? []));
    const first = [...named].filter(({ position }) => position >= 0);
    this.#arrange([...first, ...this.#members.filter((member) => !named.has(member))]);
  }

  #arrange(members: readonly Member[]): void {
    for (const member of this.#members) member.position = -1;
    for (const [position, member] of members.entries()) member.position = position;
    this.#members = members;
  }
}

/** Fisher–Yates, in place. */
function shuffle<T>(list: T[], random: Random): void {
  for (let i = list.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [list[i], list[j]] = [list[j] as T, list[i] as T];
  }
}
