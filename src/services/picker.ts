import { unmapped } from '../model/address.ts';
import type { Backends, DialFailure } from '../model/data-plane.ts';
import type { NamedEndpoint, WeightedEndpoint } from '../model/endpoint.ts';
import { DEFAULT_SCHEDULER, type SchedulerName } from '../model/scheduler.ts';
import { type AffinityOptions, ClientAffinity } from './client-affinity.ts';
import { type EjectionOptions, type EjectionRecord, Ejections } from './ejections.ts';
import type { Member } from './member.ts';
import { type CreateMember, Pool, type PoolChange } from './pool.ts';
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

interface PickerState<Each extends Member> {
  readonly pool: Pool<Each>;
  readonly ejections: Ejections;
  scheduler: Scheduler;
  /** `undefined` without session affinity. */
  affinity: ClientAffinity | undefined;
  /** Who has as many connections as it may have; `undefined` where there is no limit. */
  isFull: Except | undefined;
}

/** A picker's state, to continue in another process. */
export interface PickerRecord {
  readonly order: readonly Omit<WeightedEndpoint, 'isDoubtful'>[];
  /** How long each of them is in the set; `null`: from the start. Absent when all are. */
  readonly agesMs?: readonly (number | null)[];
  /** The scheduler's, for this order. */
  readonly turns: readonly number[];
  /** By index of `order`. Absent when there are none. */
  readonly ejections?: readonly (readonly [number, EjectionRecord])[];
  /** The longest silent client first. `endpoint` is an index of `order`. */
  readonly affinity: readonly { readonly client: string; readonly endpoint: number; readonly ageMs: number }[];
}

interface PickerOptions<Each extends Member> extends Omit<SchedulerSetup, 'slowStartMs'> {
  readonly create: CreateMember<Each>;
  /** Absent: no endpoint is ever ejected. */
  readonly ejection?: EjectionOptions;
  readonly affinity: AffinityOptions;
  /** A full endpoint may have one connection more. */
  readonly onFree?: (member: Member) => void;
}

/** Endpoints to try, one after another. */
export interface Candidates<Each extends Member = Member> {
  /** Each further one means that the one before it failed. `undefined`: there is no other. */
  next(): Each | undefined;
}

/** Chooses endpoints for one Service port: by the client's affinity, or else by the scheduler. */
export class Picker<Each extends Member = Member> {
  readonly pool: Pool<Each>;
  readonly #options: PickerOptions<Each>;
  readonly #state: PickerState<Each>;
  #schedulerName: SchedulerName = DEFAULT_SCHEDULER;
  #slowStartMs = 0;
  /** Connections of one endpoint. */
  #max = Number.POSITIVE_INFINITY;

  constructor(options: PickerOptions<Each>) {
    const { random, create } = options;
    this.pool = new Pool({ random, create, onLoad: (member) => this.#onLoad(member) });
    this.#options = options;
    const ejections = new Ejections(options.ejection ?? { ejectAfter: 0, ejectTimeMs: 0 });
    this.#state = {
      pool: this.pool,
      ejections,
      scheduler: this.#newScheduler(),
      affinity: undefined,
      isFull: undefined,
    };
  }

  /**
   * Takes effect for the next candidate, also of current picks. Round robin begins again, over a fresh shuffle, only if
   * the set of endpoints changed.
   */
  update(backends: Backends, nowMs: number): PoolChange<Each> {
    const { affinity, scheduler = DEFAULT_SCHEDULER, slowStartMs = 0 } = backends;
    if (affinity.type === 'None') {
      this.close();
    } else {
      const timeoutMs = affinity.timeoutSeconds * 1000;
      this.#state.affinity ??= new ClientAffinity(timeoutMs, this.#options.affinity);
      this.#state.affinity.timeoutMs = timeoutMs;
    }
    this.#limit(backends.maxConnections);
    const change = this.pool.update(backends, nowMs);
    const isOther = scheduler !== this.#schedulerName || slowStartMs !== this.#slowStartMs;
    if (isOther) {
      this.#schedulerName = scheduler;
      this.#slowStartMs = slowStartMs;
      this.#state.scheduler.update([]);
      this.#state.scheduler = this.#newScheduler();
    }
    if (change.kind === 'set') this.#state.ejections.update();
    for (const member of change.doubts) this.#state.ejections.doubted(member, nowMs);
    if (isOther || change.kind !== 'none') this.#state.scheduler.update(this.pool.members);
    return change;
  }

  /** Forgets the clients. Picks that have begun go on. */
  close(): void {
    this.#state.affinity?.close();
    this.#state.affinity = undefined;
  }

  /** `client`: an IP address; an IPv4-mapped one counts as the IPv4 address. */
  pick(client: string, nowMs: number): Pick<Each> {
    return new Pick(this.#state, unmapped(client), nowMs);
  }

  /** What the next {@link pick} would give this client first. Changes nothing. */
  peek(client: string, nowMs: number): Each | undefined {
    const address = unmapped(client);
    const affine = pinned(this.#state, address, nowMs);
    if (affine !== undefined) return this.isFull(affine) ? undefined : affine;
    return due(this.#state, nowMs) ?? scheduled(this.#state, address, nowMs);
  }

  /** The endpoint of the client's affinity, for which it waits while that is full. */
  affine(client: string, nowMs: number): Each | undefined {
    return pinned(this.#state, unmapped(client), nowMs);
  }

  isFull(member: Member): boolean {
    return member.open >= this.#max;
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

  #onLoad(member: Member): void {
    this.#state.scheduler.loadChanged?.(member);
    if (member.open === this.#max - 1) this.#options.onFree?.(member);
  }

  #limit(max = Number.POSITIVE_INFINITY): void {
    this.#max = max;
    this.#state.isFull = max === Number.POSITIVE_INFINITY ? undefined : (member) => member.open >= max;
  }

  #newScheduler(): Scheduler {
    return createScheduler(this.#schedulerName, { ...this.#options, slowStartMs: this.#slowStartMs });
  }
}

/**
 * The candidates for one connection, one at a time. Each further candidate means that the one before it failed.
 */
export class Pick<Each extends Member = Member> implements Candidates<Each> {
  readonly #state: PickerState<Each>;
  readonly #client: string;
  readonly #nowMs: number;
  #tries = 0;
  /** By the object of the endpoint: one that has left and come back may be tried again. */
  #last: NamedEndpoint | undefined;
  #tried: Set<NamedEndpoint> | undefined;

  constructor(state: PickerState<Each>, client: string, nowMs: number) {
    this.#state = state;
    this.#client = client;
    this.#nowMs = nowMs;
  }

  /**
   * `undefined` when there is no endpoint, or every one that is not full was tried once and {@link MIN_TRIES} tries
   * were made. The client's affinity follows each candidate, and so ends on the one that answers.
   */
  next(): Each | undefined {
    const { affinity } = this.#state;
    const member = this.#last === undefined ? this.#first() : this.#retry(this.#last);
    if (member === undefined) return undefined;
    this.#tries++;
    this.#last = member.endpoint;
    affinity?.set(this.#client, member.endpoint, this.#nowMs);
    return member;
  }

  #first(): Each | undefined {
    const current = pinned(this.#state, this.#client, this.#nowMs);
    if (current !== undefined) return this.#state.isFull?.(current) ? undefined : current;
    const trial = due(this.#state, this.#nowMs);
    if (trial === undefined) return this.#scheduled();
    this.#state.ejections.begin(trial, this.#nowMs);
    return trial;
  }

  #retry(failed: NamedEndpoint): Each | undefined {
    this.#tried ??= new Set();
    const tried = this.#tried.add(failed);
    const current = pinned(this.#state, this.#client, this.#nowMs);
    // Another connection of this client may have moved on already: follow it.
    const { isFull } = this.#state;
    if (current !== undefined && !tried.has(current.endpoint) && !isFull?.(current)) return current;
    // A retry takes a turn of its own. Otherwise the next endpoint would get all clients of a dead one.
    const untried = this.#scheduled((member) => tried.has(member.endpoint));
    return untried === undefined && this.#tries < MIN_TRIES ? this.#scheduled() : untried;
  }

  #scheduled(except?: Except): Each | undefined {
    const member = scheduled(this.#state, this.#client, this.#nowMs, except);
    if (member !== undefined) this.#state.scheduler.moved?.(member);
    return member;
  }
}

const isEjected: Except = ({ ejectedUntilMs }) => ejectedUntilMs !== Number.NEGATIVE_INFINITY;

/**
 * Full members are left out, and ejected ones come last. A scheduler knows members of this pool alone, and no more of
 * them than a `Member` has.
 */
function scheduled<Each extends Member>(
  { scheduler, ejections, isFull }: PickerState<Each>,
  client: string,
  nowMs: number,
  tried?: Except,
): Each | undefined {
  const except = either(isFull, tried);
  const among = ejections.count === 0 ? except : either(isEjected, except);
  const member = scheduler.choose(client, nowMs, among);
  if (member !== undefined || among === except) return member as Each | undefined;
  return scheduler.choose(client, nowMs, except) as Each | undefined;
}

function either(one: Except | undefined, other: Except | undefined): Except | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return (member) => one(member) || other(member);
}

/** The ejected member whose trial is due, if any. */
function due<Each extends Member>({ ejections, isFull }: PickerState<Each>, nowMs: number): Each | undefined {
  const member = ejections.due(nowMs) as Each | undefined;
  return member !== undefined && isFull?.(member) ? undefined : member;
}

/**
 * The endpoint of the client's affinity. Entries of endpoints that left are dead at once, so no update walks over all
 * clients. From an ejected endpoint the client moves on, as after a failed dial of its own, unless all are ejected.
 */
function pinned<Each extends Member>(
  { affinity, pool, ejections }: PickerState<Each>,
  client: string,
  nowMs: number,
): Each | undefined {
  const endpoint = affinity?.get(client, nowMs);
  const member = endpoint && pool.at(endpoint);
  const moves = member !== undefined && ejections.has(member) && ejections.count < pool.members.length;
  return moves ? undefined : member;
}
