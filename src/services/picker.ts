import { unmapped } from '../model/address.ts';
import type { Backends } from '../model/data-plane.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { Random } from '../util/clock.ts';
import { ClientAffinity } from './client-affinity.ts';
import type { Member } from './member.ts';
import { Pool } from './pool.ts';

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
  readonly pool: Pool;
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
  readonly pool: Pool;
  readonly #state: PickerState;
  readonly #affinityMaxClients: number;

  constructor(options: { readonly random: Random; readonly affinityMaxClients: number }) {
    this.pool = new Pool(options.random);
    this.#state = { pool: this.pool, turns: new RoundRobin(this.pool), affinity: undefined };
    this.#affinityMaxClients = options.affinityMaxClients;
  }

  /**
   * Takes effect for the next candidate, also of current picks. Returns whether the set of endpoints changed; only then
   * turns begin again, over a fresh shuffle.
   */
  update(backends: Backends, nowMs: number): boolean {
    const { affinity } = backends;
    if (affinity.type === 'None') {
      this.#state.affinity = undefined;
    } else {
      const timeoutMs = affinity.timeoutSeconds * 1000;
      this.#state.affinity ??= new ClientAffinity(timeoutMs, this.#affinityMaxClients);
      this.#state.affinity.timeoutMs = timeoutMs;
    }
    const hasChanged = this.pool.update(backends, nowMs);
    if (hasChanged) this.#state.turns.restart();
    return hasChanged;
  }

  /** `client`: an IP address; an IPv4-mapped one counts as the IPv4 address. */
  pick(client: string, nowMs: number): Pick {
    return new Pick(this.#state, unmapped(client), nowMs);
  }

  /** What the next {@link pick} would give this client first. Changes nothing. */
  peek(client: string, nowMs: number): Member | undefined {
    return pinned(this.#state, unmapped(client), nowMs) ?? this.#state.turns.peek();
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
    this.pool.restore(inTurn);
    this.#state.turns.restart();
    for (const { client, endpoint: index, ageMs } of affinity) {
      const member = this.pool.members[index];
      if (member !== undefined) this.#state.affinity?.set(client, member.endpoint, nowMs - ageMs);
    }
  }

  /**
   * The endpoint proved dead after its pick (an ICMP refusal of a UDP flow): ends the client's affinity to it.
   */
  forget(client: string, { endpoint }: Member): void {
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
  /** By the object of the endpoint: one that has left and come back may be tried again. */
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
  next(): Member | undefined {
    const { affinity } = this.#state;
    const member = this.#last === undefined ? this.#first() : this.#retry(this.#last);
    if (member === undefined) return undefined;
    this.#tries++;
    this.#last = member.endpoint;
    affinity?.set(this.#client, member.endpoint, this.#nowMs);
    return member;
  }

  #first(): Member | undefined {
    return pinned(this.#state, this.#client, this.#nowMs) ?? this.#state.turns.next();
  }

  #retry(failed: Endpoint): Member | undefined {
    this.#tried ??= new Set();
    const tried = this.#tried.add(failed);
    const current = pinned(this.#state, this.#client, this.#nowMs);
    // Another connection of this client may have moved on already: follow it.
    if (current !== undefined && !tried.has(current.endpoint)) return current;
    // A retry takes a turn of its own. Otherwise the next endpoint would get all clients of a dead one.
    const untried = this.#state.turns.next(tried);
    return untried === undefined && this.#tries < MIN_TRIES ? this.#state.turns.next() : untried;
  }
}

/**
 * The endpoint of the client's affinity. Entries of endpoints that left are dead at once, so no update walks over all
 * clients.
 */
function pinned({ affinity, pool }: PickerState, client: string, nowMs: number): Member | undefined {
  const endpoint = affinity?.get(client, nowMs);
  return endpoint && pool.at(endpoint);
}

/** Strict turns over the pool. */
class RoundRobin {
  readonly #pool: Pool;
  #turn = 0;

  constructor(pool: Pool) {
    this.#pool = pool;
  }

  restart(): void {
    this.#turn = 0;
  }

  /** The next endpoint first. */
  inTurn(): readonly Endpoint[] {
    const ring = this.#pool.members;
    return [...ring.slice(this.#turn), ...ring.slice(0, this.#turn)].map(({ endpoint }) => endpoint);
  }

  peek(): Member | undefined {
    return this.#pool.members[this.#turn];
  }

  /** The next endpoint that is not in `except`. The turn moves past it. */
  next(except?: ReadonlySet<Endpoint>): Member | undefined {
    const ring = this.#pool.members;
    for (let step = 0; step < ring.length; step++) {
      const member = ring[this.#turn];
      this.#turn = (this.#turn + 1) % ring.length;
      if (member !== undefined && !except?.has(member.endpoint)) return member;
    }
    return undefined;
  }
}
