import { unmapped } from '../model/address.ts';
import type { Backends } from '../model/data-plane.ts';
import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { Random } from '../util/clock.ts';
import { ClientAffinity } from './client-affinity.ts';

/** Upstream `pkg/proxy/userspace/proxysocket.go`, `EndpointDialTimeouts`. */
const DIAL_TIMEOUTS_MS = [250, 500, 1000, 2000];

/** With fewer endpoints a pick goes round, as upstream: a slow endpoint gets another chance. */
const MIN_TRIES = DIAL_TIMEOUTS_MS.length;

/** `attempt` counts from 0. */
export function dialTimeoutMs(attempt: number): number {
  return DIAL_TIMEOUTS_MS[Math.min(attempt, MIN_TRIES - 1)] as number;
}

/**
 * No further endpoint is tried for a client that has waited this long: hundreds of endpoints may be dead, and a client
 * that has gone looks like one that has ended its direction early.
 */
export const LONGEST_DIALLING_MS = 30_000;

interface PickerState {
  readonly turns: RoundRobin;
  /** `undefined` without session affinity. */
  affinity: ClientAffinity | undefined;
}

/** A picker's state, to continue in another process. */
export interface PickerRecord {
  /** The next endpoint first. */
  readonly inTurn: readonly Endpoint[];
  /** The longest silent client first. `endpoint` is an index of `inTurn`. */
  readonly affinity: readonly { readonly client: string; readonly endpoint: number; readonly ageMs: number }[];
}

/** Chooses endpoints for one Service port. */
export class Picker {
  readonly #state: PickerState;
  readonly #affinityMaxClients: number;

  constructor(options: { readonly random: Random; readonly affinityMaxClients: number }) {
    this.#state = { turns: new RoundRobin(options.random), affinity: undefined };
    this.#affinityMaxClients = options.affinityMaxClients;
  }

  /**
   * Takes effect for the next candidate, also of current picks. Returns whether the set of endpoints changed; only then
   * turns begin again, over a fresh shuffle.
   */
  update({ endpoints, affinity }: Backends): boolean {
    if (affinity.type === 'None') {
      this.#state.affinity = undefined;
    } else {
      const timeoutMs = affinity.timeoutSeconds * 1000;
      this.#state.affinity ??= new ClientAffinity(timeoutMs, this.#affinityMaxClients);
      this.#state.affinity.timeoutMs = timeoutMs;
    }
    return this.#state.turns.update(endpoints);
  }

  /** `client`: an IP address; an IPv4-mapped one counts as the IPv4 address. */
  pick(client: string, nowMs: number): Pick {
    return new Pick(this.#state, unmapped(client), nowMs);
  }

  /** What the next {@link pick} would give this client first. Changes nothing. */
  peek(client: string, nowMs: number): Endpoint | undefined {
    return pinned(this.#state, unmapped(client), nowMs) ?? this.#state.turns.peek();
  }

  /** Whether an endpoint that a pick returned is still in the set. One that left and came back is not the same. */
  has(endpoint: Endpoint): boolean {
    return this.#state.turns.has(endpoint);
  }

  record(nowMs: number): PickerRecord {
    const { turns, affinity } = this.#state;
    const inTurn = turns.inTurn();
    const indices = new Map(inTurn.map((endpoint, index) => [endpoint, index]));
    const pinned = [...(affinity ?? [])].flatMap(({ client, endpoint, usedMs }) => {
      const index = indices.get(endpoint);
      return index === undefined ? [] : [{ client, endpoint: index, ageMs: nowMs - usedMs }];
    });
    return { inTurn, affinity: pinned };
  }

  /** Call it after the first {@link update}, with the same endpoints. */
  restore({ inTurn, affinity }: PickerRecord, nowMs: number): void {
    const { turns } = this.#state;
    turns.restore(inTurn);
    const endpoints = turns.inTurn();
    for (const { client, endpoint: index, ageMs } of affinity) {
      const endpoint = endpoints[index];
      if (endpoint !== undefined) this.#state.affinity?.set(client, endpoint, nowMs - ageMs);
    }
  }

  /**
   * The endpoint proved dead after its pick (an ICMP refusal of a UDP flow): ends the client's affinity to it.
   */
  forget(client: string, endpoint: Endpoint): void {
    this.#state.affinity?.forget(unmapped(client), endpoint);
  }
}

/**
 * The candidates for one connection, one at a time. Each further candidate means that the one before it failed.
 */
export class Pick {
  readonly #state: PickerState;
  readonly #client: string;
  readonly #nowMs: number;
  #tries = 0;
  #last: Endpoint | undefined;
  #tried: Set<Endpoint> | undefined;

  constructor(state: PickerState, client: string, nowMs: number) {
    this.#state = state;
    this.#client = client;
    this.#nowMs = nowMs;
  }

  /**
   * `undefined` when there is no endpoint, or every one was tried once and {@link MIN_TRIES} tries were made. The
   * client's affinity follows each candidate, and so ends on the one that answers.
   */
  next(): Endpoint | undefined {
    const { affinity } = this.#state;
    const endpoint = this.#last === undefined ? this.#first() : this.#retry(this.#last);
    if (endpoint === undefined) return undefined;
    this.#tries++;
    this.#last = endpoint;
    affinity?.set(this.#client, endpoint, this.#nowMs);
    return endpoint;
  }

  #first(): Endpoint | undefined {
    return pinned(this.#state, this.#client, this.#nowMs) ?? this.#state.turns.next();
  }

  #retry(failed: Endpoint): Endpoint | undefined {
    this.#tried ??= new Set();
    const tried = this.#tried.add(failed);
    const current = pinned(this.#state, this.#client, this.#nowMs);
    // Another connection of this client may have moved on already: follow it.
    if (current !== undefined && !tried.has(current)) return current;
    // A retry takes a turn of its own. Otherwise the next endpoint would get all clients of a dead one.
    const untried = this.#state.turns.next(tried);
    return untried === undefined && this.#tries < MIN_TRIES ? this.#state.turns.next() : untried;
  }
}

/**
 * The endpoint of the client's affinity. Entries of endpoints that left are dead at once, so no update walks over all
 * clients.
 */
function pinned({ affinity, turns }: PickerState, client: string, nowMs: number): Endpoint | undefined {
  const endpoint = affinity?.get(client, nowMs);
  return endpoint !== undefined && turns.has(endpoint) ? endpoint : undefined;
}

/**
 * Strict turns over a shuffled list, so nodes with the same list begin with different endpoints (upstream
 * `pkg/proxy/userspace/roundrobin.go`, `shuffleEndpoints`).
 *
 * An endpoint is the same object while it stays in the set, and another object after it has left and come back. So what
 * was remembered of one that left never applies to its return.
 */
class RoundRobin {
  readonly #random: Random;
  #byName: ReadonlyMap<string, Endpoint> = new Map();
  #ring: readonly Endpoint[] = [];
  #members: ReadonlySet<Endpoint> = new Set();
  #turn = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  /** Returns whether the set changed. Another order or duplicates are no change: turns go on. */
  update(endpoints: readonly Endpoint[]): boolean {
    const byName = new Map<string, Endpoint>();
    for (const endpoint of endpoints) {
      const name = endpointName(endpoint);
      byName.set(name, this.#byName.get(name) ?? byName.get(name) ?? endpoint);
    }
    const ring = [...byName.values()];
    if (ring.length === this.#members.size && ring.every((endpoint) => this.#members.has(endpoint))) return false;

    shuffle(ring, this.#random);
    this.#byName = byName;
    this.#ring = ring;
    this.#members = new Set(ring);
    this.#turn = 0;
    return true;
  }

  has(endpoint: Endpoint): boolean {
    return this.#members.has(endpoint);
  }

  /** The next endpoint first. */
  inTurn(): readonly Endpoint[] {
    return [...this.#ring.slice(this.#turn), ...this.#ring.slice(0, this.#turn)];
  }

  /** Continues the turns of another instance with the same endpoints. */
  restore(inTurn: readonly Endpoint[]): void {
    this.#ring = inTurn.flatMap((endpoint) => this.#byName.get(endpointName(endpoint)) ?? []);
    this.#turn = 0;
  }

  peek(): Endpoint | undefined {
    return this.#ring[this.#turn];
  }

  /** The next endpoint that is not in `except`. The turn moves past it. */
  next(except?: ReadonlySet<Endpoint>): Endpoint | undefined {
    const ring = this.#ring;
    for (let step = 0; step < ring.length; step++) {
      const endpoint = ring[this.#turn];
      this.#turn = (this.#turn + 1) % ring.length;
      if (endpoint !== undefined && !except?.has(endpoint)) return endpoint;
    }
    return undefined;
  }
}

/** Fisher–Yates, in place. */
function shuffle(list: Endpoint[], random: Random): void {
  for (let i = list.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    const [a, b] = [list[i], list[j]];
    if (a === undefined || b === undefined) continue;
    list[i] = b;
    list[j] = a;
  }
}
