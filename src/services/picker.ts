import { unmapped } from '../model/address.ts';
import type { Backends } from '../model/data-plane.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { Random } from '../util/clock.ts';
import { ClientAffinity } from './client-affinity.ts';
import { MIN_TRIES } from './retry-policy.ts';
import { RoundRobin } from './round-robin.ts';

/** What a picker shares with the picks that it has handed out. */
interface PickerState {
  readonly turns: RoundRobin;
  /** `undefined` without session affinity. */
  affinity: ClientAffinity | undefined;
}

/** What a picker knows beyond what {@link Picker.update} tells it, to go on elsewhere. */
export interface PickerRecord {
  /** The endpoints, the one whose turn is next first. */
  readonly inTurn: readonly Endpoint[];
  /** From the client that has been silent the longest to the last. `endpoint` counts in `inTurn`. */
  readonly affinity: readonly { readonly client: string; readonly endpoint: number; readonly ageMs: number }[];
}

/** Chooses endpoints for one Service port. Pure: the clock reading and the random draw are arguments. */
export class Picker {
  readonly #state: PickerState;
  readonly #affinityMaxClients: number;

  constructor(options: { readonly random: Random; readonly affinityMaxClients: number }) {
    this.#state = { turns: new RoundRobin(options.random), affinity: undefined };
    this.#affinityMaxClients = options.affinityMaxClients;
  }

  /**
   * Takes effect for the next candidate, of picks under way too. Says whether the set of endpoints changed; only then
   * do turns begin anew, over a fresh shuffle.
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

  /** `client` is the client's IP address; an IPv4-mapped one counts as the IPv4 address. */
  pick(client: string, nowMs: number): Pick {
    return new Pick(this.#state, unmapped(client), nowMs);
  }

  /** What the next {@link pick} would give this client first. Nothing changes: no turn is taken, no affinity begins. */
  peek(client: string, nowMs: number): Endpoint | undefined {
    return pinned(this.#state, unmapped(client), nowMs) ?? this.#state.turns.peek();
  }

  /** Whether an endpoint that a pick gave is still in the set. One that left and came back is not the same. */
  has(endpoint: Endpoint): boolean {
    return this.#state.turns.has(endpoint);
  }

  record(nowMs: number): PickerRecord {
    const { turns, affinity } = this.#state;
    const inTurn = turns.inTurn();
    const indices = new Map(inTurn.map((endpoint, index) => [endpoint, index]));
    const pinned = Array.from(affinity ?? [], ({ client, endpoint, usedMs }) => {
      return { client, endpoint: indices.get(endpoint) ?? -1, ageMs: nowMs - usedMs };
    });
    // Entries of endpoints that left are dead.
    return { inTurn, affinity: pinned.filter(({ endpoint }) => endpoint >= 0) };
  }

  /** Goes on where the picker of this record was. After the first {@link update}, with the same endpoints. */
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
   * The endpoint turned out to be dead after its pick was over (an ICMP refusal of a UDP flow): the client's affinity
   * to it ends, so that the next pick takes its turn. Without affinity turns go on in any case.
   */
  forget(client: string, endpoint: Endpoint): void {
    this.#state.affinity?.forget(unmapped(client), endpoint);
  }
}

/**
 * The candidates for one connection, in order and one at a time, so that retrying lives outside the picker. Every
 * further candidate means that the one before it failed.
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
   * `undefined` when there is no endpoint, or every one has been tried once and {@link MIN_TRIES} tries were made. The
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
    // Another connection of this client may have moved on already: following it keeps the client on one endpoint.
    if (current !== undefined && !tried.has(current)) return current;
    // A retry takes a turn of its own. Without that, all that a dead endpoint turns away would fall to its successor.
    const untried = this.#state.turns.next(tried);
    return untried === undefined && this.#tries < MIN_TRIES ? this.#state.turns.next() : untried;
  }
}

/**
 * The endpoint that the client's affinity names. Entries of endpoints that left are dead at once, for the endpoint is
 * another object when it returns; so no update has to walk over every client.
 */
function pinned({ affinity, turns }: PickerState, client: string, nowMs: number): Endpoint | undefined {
  const endpoint = affinity?.get(client, nowMs);
  return endpoint !== undefined && turns.has(endpoint) ? endpoint : undefined;
}
