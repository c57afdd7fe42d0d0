import { unmapped } from '../model/address.ts';
import type { Backends, DialFailure } from '../model/data-plane.ts';
import type { Endpoint, WeightedEndpoint } from '../model/endpoint.ts';
import { DEFAULT_SCHEDULER, type SchedulerName } from '../model/scheduler.ts';
import { type AffinityOptions, ClientAffinity } from './client-affinity.ts';
import { type EjectionOptions, type EjectionRecord, Ejections } from './ejections.ts';
import type { Member } from './member.ts';
import { Pool } from './pool.ts';
import type { Except, Scheduler } from './schedulers/scheduler.ts';
import { createScheduler, type SchedulerSetup } from './schedulers/schedulers.ts';

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
  readonly ejections: Ejections;
  scheduler: Scheduler;
  /** `undefined` without session affinity. */
  affinity: ClientAffinity | undefined;
}

/** A picker's state, to continue in another process. */
export interface PickerRecord {
  readonly order: readonly WeightedEndpoint[];
  /** How long each of them is in the set; `null`: from the start. Absent when all are. */
  readonly agesMs?: readonly (number | null)[];
  /** The scheduler's, for this order. */
  readonly turns: readonly number[];
  /** By index of `order`. Absent when there are none. */
  readonly ejections?: readonly (readonly [number, EjectionRecord])[];
  /** The longest silent client first. `endpoint` is an index of `order`. */
  readonly affinity: readonly { readonly client: string; readonly endpoint: number; readonly ageMs: number }[];
}

export interface PickerOptions extends Omit<SchedulerSetup, 'slowStartMs'> {
  /** Absent: no endpoint is ever ejected. */
  readonly ejection?: EjectionOptions;
  readonly affinity: AffinityOptions;
}

/** Endpoints to try, one after another. */
export interface Candidates {
  /** Each further one means that the one before it failed. `undefined`: there is no other. */
  next(): Member | undefined;
}

/** Chooses endpoints for one Service port: by the client's affinity, or else by the scheduler. */
export class Picker {
  readonly pool: Pool;
  readonly #options: PickerOptions;
  readonly #state: PickerState;
  #schedulerName: SchedulerName = DEFAULT_SCHEDULER;
  #slowStartMs = 0;

  constructor(options: PickerOptions) {
    this.pool = new Pool(options.random, (member) => this.#state.scheduler.loadChanged?.(member));
    this.#options = options;
    const ejections = new Ejections(options.ejection ?? { ejectAfter: 0, ejectTimeMs: 0 });
    this.#state = { pool: this.pool, ejections, scheduler: this.#newScheduler(), affinity: undefined };
  }

  /**
   * Takes effect for the next candidate, also of current picks. Returns whether the set of endpoints changed; only then
   * round robin begins again, over a fresh shuffle.
   */
  update(backends: Backends, nowMs: number): boolean {
    const { affinity, scheduler = DEFAULT_SCHEDULER, slowStartMs = 0 } = backends;
    if (affinity.type === 'None') {
      this.close();
    } else {
      const timeoutMs = affinity.timeoutSeconds * 1000;
      this.#state.affinity ??= new ClientAffinity(timeoutMs, this.#options.affinity);
      this.#state.affinity.timeoutMs = timeoutMs;
    }
    const change = this.pool.update(backends, nowMs);
    const isOther = scheduler !== this.#schedulerName || slowStartMs !== this.#slowStartMs;
    if (isOther) {
      this.#schedulerName = scheduler;
      this.#slowStartMs = slowStartMs;
      this.#state.scheduler.update([]);
      this.#state.scheduler = this.#newScheduler();
    }
    if (change === 'set') this.#state.ejections.update();
    if (isOther || change !== 'none') this.#state.scheduler.update(this.pool.members);
    return change === 'set';
  }

  /** Forgets the clients. Picks that have begun go on. */
  close(): void {
    this.#state.affinity?.close();
    this.#state.affinity = undefined;
  }

  /** `client`: an IP address; an IPv4-mapped one counts as the IPv4 address. */
  pick(client: string, nowMs: number): Pick {
    return new Pick(this.#state, unmapped(client), nowMs);
  }

  /** What the next {@link pick} would give this client first. Changes nothing. */
  peek(client: string, nowMs: number): Member | undefined {
    const address = unmapped(client);
    const { ejections } = this.#state;
    return pinned(this.#state, address, nowMs) ?? ejections.due(nowMs) ?? scheduled(this.#state, address, nowMs);
  }

  /** How many endpoints of the set are ejected. */
  get ejected(): number {
    return this.#state.ejections.count;
  }

  isEjected(member: Member): boolean {
    return this.#state.ejections.has(member);
  }

  /** A dial to it was answered, or a flow. Returns whether that readmits an ejected endpoint. */
  answered(member: Member, nowMs: number): boolean {
    return this.#state.ejections.answered(member, nowMs);
  }

  /**
   * A dial to it failed, or a flow. Returns whether that ejects the endpoint. `tookMs`: how long the dial took at most,
   * where that is known.
   */
  failed(member: Member, reason: DialFailure, nowMs: number, tookMs = Number.POSITIVE_INFINITY): boolean {
    return this.#state.ejections.failed(member, reason, nowMs, { size: this.pool.members.length, tookMs });
  }

  record(nowMs: number): PickerRecord {
    const { scheduler, affinity } = this.#state;
    const { members } = this.pool;
    const order = members.map(({ endpoint, weight }) => (weight === 1 ? endpoint : { ...endpoint, weight }));
    const pinned = [...(affinity ?? [])].flatMap(({ client, endpoint, usedMs }) => {
      const member = this.pool.at(endpoint);
      return member === undefined ? [] : [{ client, endpoint: member.position, ageMs: nowMs - usedMs }];
    });
    const isYoung = members.some(({ sinceMs }) => Number.isFinite(sinceMs));
    const ejections = members.flatMap((member, index) => {
      const ejection = this.#state.ejections.recordOf(member, nowMs);
      return ejection === undefined ? [] : [[index, ejection] as const];
    });
    const agesMs = members.map(({ sinceMs }) => (Number.isFinite(sinceMs) ? nowMs - sinceMs : null));
    return {
      order,
      ...(isYoung && { agesMs }),
      turns: scheduler.record?.() ?? [],
      ...(ejections.length > 0 && { ejections }),
      affinity: pinned,
    };
  }

  /** Call it after the first {@link update}, with the same endpoints. */
  restore({ order, agesMs, turns, ejections = [], affinity }: PickerRecord, nowMs: number): void {
    this.pool.restore(order);
    for (const [position, ageMs] of (agesMs ?? []).entries()) {
      const member = this.pool.members[position];
      if (member !== undefined && ageMs !== null) member.sinceMs = nowMs - ageMs;
    }
    this.#state.scheduler.update(this.pool.members);
    this.#state.scheduler.restore?.(turns);
    for (const [index, ejection] of ejections) {
      const member = this.pool.members[index];
      if (member !== undefined) this.#state.ejections.restore(member, ejection, nowMs);
    }
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

  #newScheduler(): Scheduler {
    return createScheduler(this.#schedulerName, { ...this.#options, slowStartMs: this.#slowStartMs });
  }
}

/**
 * The candidates for one connection, one at a time. Each further candidate means that the one before it failed.
 */
export class Pick implements Candidates {
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
    const current = pinned(this.#state, this.#client, this.#nowMs);
    if (current !== undefined) return current;
    const { ejections } = this.#state;
    const trial = ejections.due(this.#nowMs);
    if (trial === undefined) return this.#scheduled();
    ejections.begin(trial, this.#nowMs);
    return trial;
  }

  #retry(failed: Endpoint): Member | undefined {
    this.#tried ??= new Set();
    const tried = this.#tried.add(failed);
    const current = pinned(this.#state, this.#client, this.#nowMs);
    // Another connection of this client may have moved on already: follow it.
    if (current !== undefined && !tried.has(current.endpoint)) return current;
    // A retry takes a turn of its own. Otherwise the next endpoint would get all clients of a dead one.
    const untried = this.#scheduled((member) => tried.has(member.endpoint));
    return untried === undefined && this.#tries < MIN_TRIES ? this.#scheduled() : untried;
  }

  #scheduled(except?: Except): Member | undefined {
    const member = scheduled(this.#state, this.#client, this.#nowMs, except);
    if (member !== undefined) this.#state.scheduler.moved?.(member);
    return member;
  }
}

const isEjected: Except = ({ ejectedUntilMs }) => ejectedUntilMs !== Number.NEGATIVE_INFINITY;

/** Ejected members come last. */
function scheduled(
  { scheduler, ejections }: PickerState,
  client: string,
  nowMs: number,
  except?: Except,
): Member | undefined {
  if (ejections.count === 0) return scheduler.choose(client, nowMs, except);
  const among: Except = except === undefined ? isEjected : (member) => isEjected(member) || except(member);
  return scheduler.choose(client, nowMs, among) ?? scheduler.choose(client, nowMs, except);
}

/**
 * The endpoint of the client's affinity. Entries of endpoints that left are dead at once, so no update walks over all
 * clients. From an ejected endpoint the client moves on, as after a failed dial of its own, unless all are ejected.
 */
function pinned({ affinity, pool, ejections }: PickerState, client: string, nowMs: number): Member | undefined {
  const endpoint = affinity?.get(client, nowMs);
  const member = endpoint && pool.at(endpoint);
  const moves = member !== undefined && ejections.has(member) && ejections.count < pool.members.length;
  return moves ? undefined : member;
}
