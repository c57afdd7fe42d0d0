import type { Address } from '../../model/address.ts';
import type { KeptAddresses } from '../../model/client-address.ts';
import { type ConnectionEntry, type Ending, NO_TRIES, type TryLog } from '../../model/connection-log.ts';
import {
  type Backends,
  type Counter,
  connectTimeOf,
  type DataPlaneObserver,
  type DataPlaneOptions,
  type DialFailure,
  FAILURE_COUNTER,
  type Limit,
  type OpenConnection,
  REFUSAL_COUNTER,
  type Refusal,
  type WaitingTerms,
} from '../../model/data-plane.ts';
import type { Endpoint, NamedEndpoint } from '../../model/endpoint.ts';
import { type ProxyProtocol, partsOf, type ServicePortName } from '../../model/service.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import type { AffinityMemory } from '../../services/affinity-memory.ts';
import { type Departure, Departures } from '../../services/departures.ts';
import { Picker, type PickerRecord } from '../../services/picker.ts';
import type { PoolChange } from '../../services/pool.ts';
import type { MaglevTables } from '../../services/schedulers/maglev-tables.ts';
import type { Clock, Random } from '../../util/clock.ts';
import { TokenBucket } from '../../util/token-bucket.ts';
import type { Admission } from './admission.ts';
import { type Loop, rounded } from './deadlines.ts';
import type { Session } from './session.ts';
import { DESCRIPTORS_OF, type Share, type Shares } from './shares.ts';
import { add, COUNTER, type Target } from './target.ts';
import { Hedges } from './tcp-dial.ts';
import { type Cause, REFUSAL, type Waiter, WaitingRoom } from './waiting-room.ts';

/**
 * Limits the events of one Service port. Counters count everything; events are for the log, and a message per refused
 * client would let a flood of clients keep the main thread busy.
 */
const EVENT_RATE = { burst: 64, ratePerSecond: 10 };

/**
 * Limits the entries of refused datagrams, of one Service port. Each datagram of a flood from forged addresses would be
 * one, and take the place of entries of other Services.
 */
const REFUSED_RATE = { burst: 1024, ratePerSecond: 100 };

type Observed = { [Kind in keyof DataPlaneObserver]: Omit<Parameters<DataPlaneObserver[Kind]>[0], 'name'> };

/** What {@link DataPlaneObserver} is told of a Service port. */
export type PortEvent = { [Kind in keyof Observed]: { readonly kind: Kind } & Observed[Kind] }[keyof Observed];

/** Whoever wakes a Service is told no more often of those who wait for it. */
const TELL_WAITS_MS = 1000;

const NONE: ReadonlySet<never> = new Set();

/** A connection, a flow, or a client that waits. */
export interface Shown {
  /** `undefined` when it has just gone. */
  describe(): OpenConnection | undefined;
}

/** What all Service ports of one thread share, whatever moves their bytes. */
export interface Thread {
  readonly options: DataPlaneOptions;
  readonly clock: Clock;
  readonly loop: Loop;
  readonly random: Random;
  /** By the clock, or when this turn of the event loop began. */
  readonly nowMs: number;
  readonly maglevTables: MaglevTables;
  readonly affinityMemory: AffinityMemory;
  readonly shares: Shares;
  /** Those with sessions, closed ones among them. */
  readonly busyPorts: Set<Port>;
  readonly admission: Admission;
  readonly connectionLog: {
    readonly isWanted: boolean;
    add(entry: ConnectionEntry): void;
    lose(count: number): void;
  };
  /** Cannot be cancelled. */
  after(delayMs: number, run: () => void): void;
}

export interface PortSetup {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  readonly isHome: boolean;
  /** Connections end some time after their endpoint has gone. */
  readonly drains: boolean;
}

/** One Service port of either protocol: its endpoints, its counters, its sessions and its events. */
export abstract class Port<Each extends Target = Target, Given extends Backends = Backends> {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  /** Whether this thread picks. Another one only carries connections that it is given (docs/adr/0027). */
  readonly isHome: boolean;
  #shownEjected = 0;
  /** Made at the first dial if there may be any. */
  #hedges: Hedges | undefined;
  readonly #events: TokenBucket;
  /** Of refused datagrams. */
  #refused: TokenBucket | undefined;
  /** The last that were given. */
  #backends: Given;
  #picker: Picker<Each> | undefined;
  /** For connections that are ended some time after their endpoint has gone. */
  #departures: Departures | undefined;
  readonly #drains: boolean;
  #sessions: Set<Session> | undefined;
  /** While somebody waits. */
  #room: WaitingRoom | undefined;
  #toldWaitsMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(thread: Thread, backends: Given, { name, protocol, isHome, drains }: PortSetup) {
    this.name = name;
    this.protocol = protocol;
    this.isHome = isHome;
    this.#backends = backends;
    this.#events = new TokenBucket({ clock: thread.clock, ...EVENT_RATE });
    this.#drains = protocol === 'TCP' && drains;
  }

  abstract readonly thread: Thread;
  abstract readonly counters: Float64Array;
  /** Its namespace's. */
  abstract readonly share: Share;

  /** `given`: by the update that has brought the endpoint. */
  protected abstract createTarget(endpoint: NamedEndpoint, given: Given): Each;
  protected abstract tell(event: PortEvent): void;

  /** Made for the first client or update: of ten thousand Services, most have neither on this node. */
  get picker(): Picker<Each> {
    if (this.#picker !== undefined) return this.#picker;
    const { random, options, maglevTables, affinityMemory } = this.thread;
    this.#picker = new Picker({
      random,
      create: (endpoint) => this.createTarget(endpoint, this.#backends),
      affinity: {
        maxClients: options.affinityMaxClients,
        memory: affinityMemory,
        namespace: partsOf(this.name).namespace,
        onForgotten: (clients) => {
          this.count('affinityForgotten', undefined, clients);
          this.#report({ kind: 'clientsForgotten' });
        },
      },
      maglevTables,
      // Others do not hear who answers, and so would never readmit one.
      ...(this.isHome && { ejection: options }),
      onFree: (member) => this.#room?.freed(member),
    });
    this.update(this.#backends);
    return this.#picker;
  }

  /** `undefined` before the first client or update. */
  pickerRecord(): PickerRecord | undefined {
    return this.#picker?.record(this.thread.nowMs);
  }

  /** Endpoints that stay, in the set or draining, keep their counts. */
  update(backends: Given): PoolChange<Each> {
    // The first look at it updates with the backends before: whoever is not among them is new.
    const { picker } = this;
    this.#backends = backends;
    const change = picker.update(backends, this.thread.nowMs);
    this.showEjected();
    if (this.#drains && this.#drainMs > 0) this.#departures ??= new Departures();
    this.#drainLater(this.#departures?.update(change));
    this.#room?.updated();
    return change;
  }

  /** Which clients endpoints see by their own address. */
  get keptAddresses(): KeptAddresses | undefined {
    return this.#backends.keptAddresses;
  }

  get proxyProtocol(): ProxyProtocol | undefined {
    return this.#backends.proxyProtocol;
  }

  /** See {@link Backends.udpReplayMs}. */
  get udpReplayMs(): number | undefined {
    return this.#backends.udpReplayMs;
  }

  /** Connections are ended at about this age; `undefined`: at none. */
  get maxConnectionAgeMs(): number | undefined {
    return this.#backends.maxConnectionAgeMs;
  }

  /** Silence that ends a UDP flow after a reply. */
  get udpIdleTimeoutMs(): number {
    const { udpTimeoutMs } = this.#backends;
    return udpTimeoutMs === undefined ? this.thread.options.udpIdleTimeoutMs : rounded(udpTimeoutMs);
  }

  /** For clients who have no endpoint now; `undefined`: none comes any more, or they are refused. */
  get waiting(): WaitingTerms | undefined {
    return this.isHome && !this.#isClosed ? this.#backends.waiting : undefined;
  }

  /** No client comes any more. */
  forgetClients(): void {
    this.#isClosed = true;
    this.#picker?.close();
    this.#room?.close();
  }

  /** Whether the endpoint is in the set or draining. */
  has({ name }: Target): boolean {
    return this.picker.pool.find(name) !== undefined;
  }

  /** Its connections and flows in this thread, the oldest first. They go on when a TCP port closes. */
  get sessions(): ReadonlySet<Session> {
    return this.#sessions ?? NONE;
  }

  began(session: Session): void {
    this.#sessions ??= new Set();
    if (this.#sessions.size === 0) this.thread.busyPorts.add(this);
    this.#sessions.add(session);
  }

  ended(session: Session): void {
    if (this.#sessions?.delete(session) && this.#sessions.size === 0) this.thread.busyPorts.delete(this);
  }

  /** Those of now: others may begin faster than it goes on. */
  *shown(): Generator<Shown, undefined> {
    let left = this.sessions.size;
    for (const session of this.sessions) {
      if (left-- === 0) break;
      yield session;
    }
    // Those of TCP are connections.
    if (this.protocol === 'UDP') yield* this.#room?.guests ?? [];
  }

  /** Why a new client must wait behind others; `undefined`: it need not. */
  causeBehind(client: Address): Cause | undefined {
    return this.#room?.causeBehind(client);
  }

  /** Why a client has no endpoint. */
  causeOf(reason: 'no-endpoints' | 'exhausted'): Cause {
    const { picker } = this;
    const { members } = picker.pool;
    if (members.length === 0) return 'none';
    return reason === 'exhausted' && !members.some((member) => picker.isFull(member)) ? 'unanswered' : 'full';
  }

  /** A client without an endpoint waits for one, until {@link left}. Returns why it does not, if so. */
  wait(waiter: Waiter, cause: Cause): Refusal | undefined {
    if (this.waiting === undefined && !waiter.isKnown) return REFUSAL[cause];
    this.#room ??= new WaitingRoom(this);
    const wasEmpty = this.#room.isEmpty;
    const refusal = this.#room.enter(waiter, cause);
    if (wasEmpty && refusal === undefined) this.#tellWaits();
    this.#leaveIfEmpty();
    return refusal;
  }

  /** Returns how long it has waited. */
  left(waiter: Waiter): number {
    const waitedMs = this.#room?.leave(waiter) ?? 0;
    this.#leaveIfEmpty();
    return waitedMs;
  }

  /** Of a UDP client. */
  heard(waiter: Waiter): void {
    waiter.heard(this.thread.nowMs);
    this.#room?.restart(waiter);
  }

  /** Clients in the room have no socket to an endpoint yet. */
  countWaiting(amount: number): void {
    this.count('waiting', undefined, amount);
    if (this.protocol === 'TCP') this.thread.shares.descriptors.give(amount, this.share);
  }

  count(counter: Counter, target?: Target, amount = 1): void {
    add(this.counters, COUNTER[counter], amount);
    if (target !== undefined) add(target.counters, COUNTER[counter], amount);
  }

  /** Connections and flows that are open, and with them their descriptors. */
  countActive(amount: number, target?: Target): void {
    this.count('active', target, amount);
    this.thread.shares.descriptors.take(amount * DESCRIPTORS_OF[this.protocol], this.share);
  }

  /**
   * The connection or flow has its endpoint, which it has {@link Target.taken} and gives back in the end. `tookMs`: how
   * long the dial took, if one was answered.
   */
  joined(target: Target, tookMs?: number): void {
    if (tookMs !== undefined) {
      this.answered(target);
      this.count('connects', target);
      this.count('connectMs', target, tookMs);
      this.count(connectTimeOf(tookMs), target);
    }
    add(target.counters, COUNTER.connections, 1);
  }

  /** See {@link Hedges.quietMs}. */
  quietMs(tries: number, timeoutMs: number): number {
    const { dialHedgeMs } = this.thread.options;
    if (dialHedgeMs === 0 || !this.isHome) return 0;
    this.#hedges ??= new Hedges(dialHedgeMs);
    return this.#hedges.quietMs(tries, timeoutMs, this.#backends.affinity.type !== 'None');
  }

  /** Takes one of the second dials that there may be. */
  mayHedge(): boolean {
    return this.picker.pool.members.length > 1 && (this.#hedges?.tryTake() ?? false);
  }

  /** A dial or a flow. */
  answered(target: Target): void {
    this.#room?.answered();
    if (!this.isHome || !this.picker.answered(target, this.thread.nowMs)) return;
    this.#report({ kind: 'readmitted', backend: target.name });
    this.showEjected();
  }

  /** The endpoint may have left during the dial. */
  connectedTo(target: Target): void {
    if (!this.has(target)) this.#drainLater(this.#departures?.connected(target.name));
  }

  clientRefused(client: string, reason: Refusal): void {
    this.#report({ kind: 'clientRefused', client, reason });
    this.count(REFUSAL_COUNTER[reason]);
  }

  /** `err`: for people. `tookMs`: see {@link Picker.failed}. Returns the reason. */
  dialFailedFor(target: Target, reason: DialFailure, err: string, tookMs?: number): DialFailure {
    this.#report({ kind: 'dialFailed', backend: target.name, reason, err });
    this.count(FAILURE_COUNTER[reason], target);
    if (this.isHome) this.judge(target, reason, err, tookMs);
    return reason;
  }

  /** Its clients must wait, because its namespace holds its share. */
  atShare(): void {
    this.#report({ kind: 'limited', limit: 'descriptors' });
    this.count('pauses');
  }

  limited(client: string | undefined, limit: Limit): void {
    this.#report({ kind: 'limited', limit, ...(client !== undefined && { client }) });
    this.count('limited');
  }

  /** A datagram got no flow: the connection log has an entry of it, unless there are too many. */
  refusedDatagram(client: Endpoint, ending: Ending, tries?: TryLog): void {
    const { connectionLog, clock } = this.thread;
    if (!connectionLog.isWanted) return;
    this.#refused ??= new TokenBucket({ clock, ...REFUSED_RATE });
    if (!this.#refused.tryTake(this.thread.nowMs)) {
      connectionLog.lose(1);
      return;
    }
    connectionLog.add({
      name: this.name,
      protocol: 'UDP',
      client,
      backend: undefined,
      ending,
      endedAt: clock.wallNow(),
      durationMs: 0,
      receivedBytes: 0,
      sentBytes: 0,
      tries: tries?.value ?? NO_TRIES,
    });
  }

  listenerFailed(err: string): void {
    this.#report({ kind: 'listenerFailed', err });
  }

  /** A dial or a flow has failed; this thread picks. */
  protected judge(target: Target, reason: DialFailure, err: string, tookMs?: number): void {
    if (!this.picker.failed(target, reason, this.thread.nowMs, tookMs)) return;
    this.#report({ kind: 'ejected', backend: target.name, failures: target.failures, err });
    this.count('ejections', target);
    this.showEjected();
  }

  /** In the gauges. */
  protected showEjected(): void {
    const { picker } = this;
    if (picker.ejected === 0 && this.#shownEjected === 0) return;
    this.#shownEjected = picker.ejected;
    this.counters[COUNTER.ejected] = picker.ejected;
    for (const target of picker.pool.all()) target.counters[COUNTER.ejected] = picker.isEjected(target) ? 1 : 0;
  }

  /** Ends the connections to endpoints that left and did not come back. */
  #endDeparted(departure: Departure): void {
    const gone = this.#departures?.end(departure);
    if (gone === undefined || gone.size === 0) return;
    for (const session of this.sessions) {
      if (session.target !== undefined && gone.has(session.target.name)) session.cut('proxy-drain');
    }
  }

  #drainLater(departure: Departure | undefined): void {
    const drainMs = this.#drainMs;
    if (departure === undefined || drainMs === 0) return;
    this.thread.after(drainMs, () => this.#endDeparted(departure));
  }

  /** 0: connections outlive their endpoint. */
  get #drainMs(): number {
    const { drainTimeoutMs } = this.#backends;
    if (drainTimeoutMs === undefined) return this.thread.options.endpointDrainTimeoutMs;
    return drainTimeoutMs === 0 ? 0 : rounded(drainTimeoutMs);
  }

  #leaveIfEmpty(): void {
    if (this.#room?.isEmpty) this.#room = undefined;
  }

  /** Not limited as other events are: without it nobody might wake the Service. */
  #tellWaits(): void {
    const { nowMs } = this.thread;
    if (nowMs - this.#toldWaitsMs < TELL_WAITS_MS) return;
    this.#toldWaitsMs = nowMs;
    this.tell({ kind: 'clientWaits' });
  }

  /** Report first and count afterwards, so that whoever sees the new count also finds the event. */
  #report(event: PortEvent): void {
    if (this.#events.tryTake(this.thread.nowMs)) this.tell(event);
  }
}
