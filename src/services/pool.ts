import type { Backends } from '../model/data-plane.ts';
import type { NamedEndpoint } from '../model/endpoint.ts';
import type { Random } from '../util/clock.ts';
import type { Member } from './member.ts';

/** Makes the member of a new endpoint. */
export type CreateMember<Each extends Member> = (endpoint: NamedEndpoint) => Each;

/** What an update did to a pool. */
export interface PoolChange<Each extends Member> {
  /** To the endpoints that get new connections. Another order or duplicates are no change. */
  readonly kind: 'set' | 'weights' | 'none';
  /** New, in the set or draining. An endpoint that left before and comes back is another member. */
  readonly joined: readonly Each[];
  /** In neither list any more. */
  readonly left: readonly Each[];
  /** Which have become doubtful, or are so no more. */
  readonly doubts: readonly Each[];
}

interface PoolSetup<Each extends Member> {
  readonly random: Random;
  readonly create: CreateMember<Each>;
  /** The open connections of a member of the set changed. */
  onLoad(member: Member): void;
}

/** The endpoints of one listener: those in the set, and those that drain. */
export class Pool<Each extends Member> {
  readonly #setup: PoolSetup<Each>;
  /** In the set or draining. */
  #byName: ReadonlyMap<string, Each> = new Map();
  #members: readonly Each[] = [];
  #hasBegun = false;

  constructor(setup: PoolSetup<Each>) {
    this.#setup = setup;
  }

  /**
   * Those in the set, shuffled, so nodes with the same list begin with different endpoints (upstream
   * `pkg/proxy/userspace/roundrobin.go`, `shuffleEndpoints`).
   */
  get members(): readonly Each[] {
    return this.#members;
  }

  /** In the set or draining. */
  find(name: string): Each | undefined {
    return this.#byName.get(name);
  }

  /** In the set or draining. */
  all(): Iterable<Each> {
    return this.#byName.values();
  }

  /** The member of which this is the object, if it is still in the set. One that left and came back has another. */
  at(endpoint: NamedEndpoint): Each | undefined {
    const member = this.#byName.get(endpoint.name);
    return member?.endpoint === endpoint && member.position >= 0 ? member : undefined;
  }

  /** The only comparison of an endpoint list with the one before: others read its result. */
  update({ endpoints, draining = [] }: Pick<Backends, 'endpoints' | 'draining'>, nowMs: number): PoolChange<Each> {
    const before = this.#byName;
    const byName = new Map<string, Each>();
    const joined: Each[] = [];
    const known = (endpoint: NamedEndpoint): Each => {
      const { name } = endpoint;
      let member = byName.get(name) ?? before.get(name);
      if (member === undefined) {
        member = this.#setup.create(endpoint);
        member.onLoad = this.#setup.onLoad;
        joined.push(member);
      }
      byName.set(name, member);
      return member;
    };
    let kind: PoolChange<Each>['kind'] = 'none';
    const doubts: Each[] = [];
    for (const endpoint of endpoints) {
      const member = known(endpoint);
      const { weight = 1, isDoubtful = false } = endpoint;
      if (member.weight !== weight) kind = 'weights';
      member.weight = weight;
      if (member.isDoubtful !== isDoubtful) doubts.push(member);
      member.isDoubtful = isDoubtful;
    }
    const members = [...byName.values()];
    for (const endpoint of draining) known(endpoint);
    this.#byName = byName;

    if (this.#enter(members, nowMs) || members.length !== this.#members.length) {
      kind = 'set';
      shuffle(members, this.#setup.random);
      this.#arrange(members);
    }
    const hasLeft = before.size + joined.length > byName.size;
    return { kind, joined, doubts, left: hasLeft ? [...before.values()].filter(({ name }) => !byName.has(name)) : [] };
  }

  /** Puts the set into the order of another process. */
  restore(order: readonly NamedEndpoint[]): void {
    const named = new Set(order.flatMap(({ name }) => this.find(name) ?? []));
    const first = [...named].filter(({ position }) => position >= 0);
    this.#arrange([...first, ...this.#members.filter((member) => !named.has(member))]);
  }

  /** Whether any of them was not in the set before. */
  #enter(members: readonly Each[], nowMs: number): boolean {
    const entered = members.filter(({ position }) => position < 0);
    for (const member of entered) {
      const { address, port, name } = member.endpoint;
      member.endpoint = { address, port, name };
      if (this.#hasBegun) member.sinceMs = nowMs;
    }
    if (entered.length > 0) this.#hasBegun = true;
    return entered.length > 0;
  }

  #arrange(members: readonly Each[]): void {
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
