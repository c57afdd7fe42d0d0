import type { KeptAddresses } from '../../../model/client-address.ts';
import type { ConnectionEntry, Ending } from '../../../model/connection-log.ts';
import { NO_TRIES, TryLog } from '../../../model/connection-log.ts';
import {
  type Backends,
  COUNTERS,
  type Counter,
  type DataPlaneObserver,
  type DialFailure,
  type Limit,
  type OpenConnection,
} from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { type ProxyProtocol, partsOf, type ServicePortName } from '../../../model/service.ts';
import type { ProxiedProtocol } from '../../../model/service-port.ts';
import { type Departure, Departures } from '../../../services/departures.ts';
import { dialTimeoutMs, type PickerRecord } from '../../../services/picker.ts';
import { EPOLLIN } from '../../../sys/epoll.ts';
import { describeErrno, errnoName, must } from '../../../sys/sys-error.ts';
import { TokenBucket } from '../../../util/token-bucket.ts';
import { DESCRIPTORS_OF } from '../../descriptor-share.ts';
import { dialFailureOf, FAILURE_COUNTER, FAILURE_TEXT } from '../../errors.ts';
import { Hedges } from '../../hedges.ts';
import { Holding } from '../../holdings.ts';
import { REFUSED_RATE } from '../../refused-rate.ts';
import { Deadline } from './deadlines.ts';
import { Endpoints, type Target } from './endpoints.ts';
import type { Handler } from './event-loop.ts';
import { Guess } from './guess.ts';
import { COUNTER, type CountedBackends, type CounterBlocks, type PortEvent, type PortId } from './protocol.ts';
import type { SessionRecord } from './records.ts';
import type { WorkerContext } from './worker-context.ts';

/**
 * Limits the events of one Service port. Counters count everything; events are for the log, and a message per refused
 * client would let a flood of clients keep the main thread busy.
 */
const EVENT_RATE = { burst: 64, ratePerSecond: 10 };

/** After an unexpected failure of a listening socket. */
const RETRY_MS = 1000;

/** How soon to ask again for carriers: there may have been no descriptors for them. */
const ASK_AGAIN_MS = 10_000;

/** One Service port of either protocol: its endpoints, its counters, and its events. */
export class Port {
  readonly id: PortId;
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  readonly worker: WorkerContext;
  /** Whether this worker picks. Another one only carries connections that it is given (docs/adr/0027). */
  readonly isHome: boolean;
  /** Workers that may carry connections of this home. */
  carriers: readonly number[] = [];
  #askedForCarriersMs = Number.NEGATIVE_INFINITY;
  /** Before the endpoint has answered: where it speaks first, or the client is slow, there is nothing to read yet. */
  readonly clientsHaveSent = new Guess();
  /** Once {@link endpoints} exist. */
  proxyProtocol: ProxyProtocol | undefined;
  /** See {@link Backends.udpReplayMs}. */
  udpReplayMs: number | undefined;
  /** Bytes of datagrams that nobody has answered yet. */
  keptBytes = 0;
  #shownEjected = 0;
  /** Where there may be any. */
  #hedges: Hedges | undefined;
  #hasAffinity = false;
  readonly #events: TokenBucket;
  /** Of refused datagrams. */
  #refused: TokenBucket | undefined;
  readonly #blocks: CounterBlocks;
  readonly #cells: SharedArrayBuffer;
  #holding: Holding | undefined;
  #counters: Float64Array | undefined;
  /** Until {@link endpoints} exist. */
  #backends: CountedBackends | undefined;
  #endpoints: Endpoints | undefined;
  /** For connections that are ended some time after their endpoint has gone. */
  readonly #departures: Departures | undefined;
  #keptAddresses: KeptAddresses | undefined;

  constructor(setup: {
    readonly id: PortId;
    readonly name: ServicePortName;
    readonly protocol: ProxiedProtocol;
    readonly worker: WorkerContext;
    readonly backends: CountedBackends;
    readonly counters: CounterBlocks;
    readonly holding: SharedArrayBuffer;
    /** Nobody knows its endpoints any more. */
    readonly isClosed?: boolean;
    readonly isHome?: boolean;
  }) {
    this.id = setup.id;
    this.name = setup.name;
    this.protocol = setup.protocol;
    this.worker = setup.worker;
    this.isHome = setup.isHome ?? true;
    this.#backends = setup.backends;
    this.#blocks = setup.counters;
    this.#cells = setup.holding;
    this.#events = new TokenBucket({ clock: setup.worker.loop.clock, ...EVENT_RATE });
    const drains = setup.protocol === 'TCP' && !setup.isClosed;
    if (drains && setup.worker.options.endpointDrainTimeoutMs > 0) this.#departures = new Departures();
  }

  /** Made for the first client or update: of ten thousand Services, most have neither on this node. */
  get endpoints(): Endpoints {
    if (this.#endpoints !== undefined) return this.#endpoints;
    const { random, options, maglevTables, affinityMemory } = this.worker;
    this.#endpoints = new Endpoints({
      random,
      affinity: {
        maxClients: options.affinityMaxClients,
        memory: affinityMemory,
        namespace: partsOf(this.name).namespace,
        onForgotten: (clients) => {
          this.count('affinityForgotten', undefined, clients);
          this.#report({ kind: 'clientsForgotten', port: this.id });
        },
      },
      maglevTables,
      ejection: options,
      onUnknown: (name) =>
        this.listenerFailed(`endpoint ${name} is served but not counted: no update has brought it; please report this`),
    });
    if (this.#backends !== undefined) this.update(this.#backends);
    this.#backends = undefined;
    return this.#endpoints;
  }

  update(backends: CountedBackends): void {
    this.endpoints.update(backends, this.worker.loop.nowMs);
    // Second, because the first look at `endpoints` updates with older backends.
    this.proxyProtocol = backends.proxyProtocol;
    this.#keptAddresses = backends.keptAddresses;
    this.udpReplayMs = backends.udpReplayMs;
    this.#hasAffinity = backends.affinity.type !== 'None';
    this.#showEjected();
    this.#drainLater(this.#departures?.update(backends));
  }

  /** Which clients endpoints see by their own address. */
  get keptAddresses(): KeptAddresses | undefined {
    return this.#backends === undefined ? this.#keptAddresses : this.#backends.keptAddresses;
  }

  /** No client comes any more. */
  forgetClients(): void {
    this.#endpoints?.picker.close();
  }

  /** `undefined` before the first client or update. */
  pickerRecord(): PickerRecord | undefined {
    return this.#endpoints?.picker.record(this.worker.loop.nowMs);
  }

  /** Continues where another process was. */
  restorePicker(record: PickerRecord): void {
    this.endpoints.picker.restore(record, this.worker.loop.nowMs);
    this.#showEjected();
  }

  /** See {@link COUNTER}; shared with the main thread. */
  get counters(): Float64Array {
    this.#counters ??= new Float64Array(this.#blocks.memory, this.#blocks.offset, COUNTERS.length);
    return this.#counters;
  }

  /** What its namespace holds of the process's descriptors. */
  get holding(): Holding {
    this.#holding ??= new Holding(this.#cells, this.worker.index);
    return this.#holding;
  }

  count(counter: Counter, target?: Target, amount = 1): void {
    add(this.counters, COUNTER[counter], amount);
    if (target !== undefined) add(target.counters, COUNTER[counter], amount);
  }

  /** Connections and flows that are open, and with them their descriptors. */
  countActive(amount: number, target?: Target): void {
    this.count('active', target, amount);
    const descriptors = amount * DESCRIPTORS_OF[this.protocol];
    this.holding.add(descriptors);
    this.worker.descriptors.add(descriptors);
  }

  /** A client was accepted, or a flow begun. */
  begin(): void {
    this.count('connections');
    this.countActive(1);
  }

  /**
   * The connection or flow has its endpoint, which it has {@link Member.taken} and gives back in the end. `tookMs`: how
   * long the dial took, if one was answered.
   */
  joined(target: Target, tookMs?: number): void {
    if (tookMs !== undefined) {
      this.answered(target);
      this.count('connects', target);
      this.count('connectMs', target, tookMs);
    }
    add(target.counters, COUNTER.connections, 1);
    add(target.counters, COUNTER.active, 1);
  }

  /** See {@link Hedges.quietMs}. */
  quietMs(tries: number, timeoutMs: number): number {
    const { dialHedgeMs } = this.worker.options;
    if (dialHedgeMs === 0 || !this.isHome) return 0;
    this.#hedges ??= new Hedges(dialHedgeMs);
    return this.#hedges.quietMs(tries, timeoutMs, this.#hasAffinity);
  }

  /** Takes one of the second dials that there may be. */
  mayHedge(): boolean {
    return this.endpoints.picker.pool.members.length > 1 && (this.#hedges?.tryTake() ?? false);
  }

  /** A dial or a flow. */
  answered(target: Target): void {
    if (!this.isHome || !this.endpoints.picker.answered(target.member, this.worker.loop.nowMs)) return;
    this.#report({ kind: 'readmitted', port: this.id, backend: target.name });
    this.#showEjected();
  }

  /** The endpoint may have left during the dial. */
  connectedTo(target: Target): void {
    this.#drainLater(this.#departures?.connected(target.name));
  }

  clientRefused(client: string, reason: Parameters<DataPlaneObserver['clientRefused']>[0]['reason']): void {
    this.#report({ kind: 'clientRefused', port: this.id, client, reason });
    this.count(reason === 'exhausted' ? 'exhausted' : 'noEndpoints');
  }

  /** `tookMs`: see {@link Picker.failed}. */
  dialFailed(target: Target, errno: number, tookMs?: number): DialFailure {
    const reason = dialFailureOf(errnoName(errno));
    this.#dialFailed(target, reason, describeErrno(errno), tookMs);
    return reason;
  }

  /** The dial did not even begin, for a reason that lies in this node. */
  dialPrevented(target: Target, err: string): DialFailure {
    this.#dialFailed(target, 'other', err);
    return 'other';
  }

  /** Another worker has dialled, and has counted and reported the failure. */
  failedElsewhere(target: Target, reason: DialFailure): void {
    // It dials the first endpoint of a client. The messages there and back may take as long again.
    this.#judge(target, reason, FAILURE_TEXT[reason], reason === 'timeout' ? 2 * dialTimeoutMs(0) : undefined);
  }

  /** The same for a flow. */
  flowFailedElsewhere(target: Target, client: string, reason: DialFailure): void {
    this.failedElsewhere(target, reason);
    if (reason !== 'other') this.endpoints.picker.forget(client, target.member);
  }

  /** The answer comes as a command, unless the port cannot be shared for now. */
  askForCarriers(): void {
    const { nowMs } = this.worker.loop;
    if (nowMs - this.#askedForCarriersMs < ASK_AGAIN_MS) return;
    this.#askedForCarriersMs = nowMs;
    this.worker.report({ kind: 'busy', port: this.id });
  }

  dialTimedOut(target: Target, timeoutMs: number, tookMs: number): void {
    this.#dialFailed(target, 'timeout', `no answer within ${timeoutMs} ms`, tookMs);
  }

  /** Whether it was the endpoint's failure, and not this node's. */
  flowFailed(target: Target, client: string, errno: number): boolean {
    if (this.dialFailed(target, errno) === 'other') return false;
    // The client's next datagram must not be pinned to it.
    this.endpoints.picker.forget(client, target.member);
    return true;
  }

  /** Its clients wait, because its namespace holds its share. */
  atShare(): void {
    this.#report({ kind: 'limited', port: this.id, limit: 'descriptors' });
    this.count('pauses');
  }

  limited(client: string, limit: Limit): void {
    this.#report({ kind: 'limited', port: this.id, client, limit });
    this.count('limited');
  }

  /** A datagram got no flow: the connection log has an entry of it, unless there are too many. */
  refusedDatagram(client: Endpoint, ending: Ending, tries: TryLog | undefined): void {
    const { connectionLog, loop } = this.worker;
    if (!connectionLog.isWanted) return;
    this.#refused ??= new TokenBucket({ clock: loop.clock, ...REFUSED_RATE });
    if (!this.#refused.tryTake(loop.nowMs)) {
      connectionLog.lose(1);
      return;
    }
    connectionLog.add({
      name: this.name,
      protocol: 'UDP',
      client,
      backend: undefined,
      ending,
      endedAt: loop.clock.wallNow(),
      durationMs: 0,
      receivedBytes: 0,
      sentBytes: 0,
      tries: tries?.value ?? NO_TRIES,
    });
  }

  listenerFailed(err: string): void {
    this.#report({ kind: 'listenerFailed', port: this.id, err });
  }

  /** Ends the connections to endpoints that left and did not come back. */
  endDeparted(departure: Departure): void {
    const gone = this.#departures?.end(departure) ?? new Set();
    if (gone.size === 0) return;
    // A visit of all connections is cheaper than keeping a list of connections for each endpoint.
    for (const handler of this.worker.loop.handlers) {
      if (!(handler instanceof Session) || handler.port !== this) continue;
      if (handler.target !== undefined && gone.has(handler.target.name)) handler.cut('proxy-drain');
    }
  }

  #drainLater(departure: Departure | undefined): void {
    if (departure === undefined) return;
    const { loop, options } = this.worker;
    loop.deadlines.after(options.endpointDrainTimeoutMs).start(new DrainDeadline(this, departure), loop.nowMs);
  }

  #dialFailed(target: Target, reason: DialFailure, err: string, tookMs?: number): void {
    this.#report({ kind: 'dialFailed', port: this.id, backend: target.name, reason, err });
    this.count(FAILURE_COUNTER[reason], target);
    if (this.isHome) this.#judge(target, reason, err, tookMs);
  }

  #judge(target: Target, reason: DialFailure, err: string, tookMs?: number): void {
    if (!this.endpoints.picker.failed(target.member, reason, this.worker.loop.nowMs, tookMs)) return;
    this.#report({ kind: 'ejected', port: this.id, backend: target.name, failures: target.member.failures, err });
    this.count('ejections', target);
    this.#showEjected();
  }

  /** Its gauges. */
  #showEjected(): void {
    const { ejected } = this.endpoints.picker;
    if (ejected === 0 && this.#shownEjected === 0) return;
    this.#shownEjected = ejected;
    this.counters[COUNTER.ejected] = ejected;
    this.endpoints.showEjected();
  }

  /** Call it before counting: whoever sees the count must find the event. */
  #report(event: PortEvent): void {
    if (this.#events.tryTake(this.worker.loop.nowMs)) this.worker.report(event);
  }
}

class DrainDeadline extends Deadline {
  readonly #port: Port;
  readonly #departure: Departure;

  constructor(port: Port, departure: Departure) {
    super();
    this.#port = port;
    this.#departure = departure;
  }

  onDue(): void {
    this.#port.endDeparted(this.#departure);
  }
}

/** The listening socket of one port. The main thread lends it, so it stays open when this ends. */
export abstract class Listener extends Deadline implements Handler {
  readonly port: Port;
  readonly fd: number;

  /** Throws a SysError when the descriptor cannot be watched. */
  constructor(port: Port, fd: number) {
    super();
    this.port = port;
    this.fd = fd;
    must('epoll_ctl', port.worker.loop.watch(fd, EPOLLIN, this));
  }

  abstract onEvents(events: number, fd: number): void;

  /** Stops listening. True when the descriptor is given back at once; else `onClosed` is called in a later turn. */
  abstract close(onClosed: () => void): boolean;

  update(backends: CountedBackends): void {
    this.port.update(backends);
  }

  onShutdown(): void {
    this.port.worker.loop.unwatch(this.fd);
  }

  onDue(): void {
    this.rewatch(EPOLLIN);
  }

  protected rewatch(events: number): void {
    this.port.worker.loop.rewatch(this.fd, events);
  }

  /** After an unexpected failure the socket stays ready to read, so a retry at once could spin. */
  protected retryAfter(call: string, errno: number): void {
    const { loop } = this.port.worker;
    this.port.listenerFailed(`${call}: ${describeErrno(errno)}`);
    this.rewatch(0);
    loop.chores.after(RETRY_MS).start(this, loop.nowMs);
  }
}

/** A TCP connection or a UDP flow. */
export abstract class Session extends Deadline implements Handler {
  readonly port: Port;
  /** The client's of a TCP connection. */
  readonly fd: number;
  isOver = false;
  /** The endpoint that answered. */
  abstract readonly target: Target | undefined;
  /** By the loop's clock. */
  #beganMs: number;
  #tries: TryLog | undefined;

  constructor(port: Port, fd: number) {
    super();
    this.port = port;
    this.fd = fd;
    this.#beganMs = port.worker.loop.nowMs;
  }

  abstract onEvents(events: number, fd: number): void;
  /** Ends it at once: a TCP connection by a reset of both sides. */
  abstract cut(ending: Ending): void;
  /** What another process needs to continue it. */
  abstract record(): SessionRecord;
  /** `undefined` when the client has just gone. */
  abstract describe(): OpenConnection | undefined;

  /** The client's address and port, as far as it is known. */
  protected abstract client(): Endpoint | undefined;
  protected abstract bytes(): Pick<ConnectionEntry, 'receivedBytes' | 'sentBytes'>;

  onShutdown(): void {
    this.cut('proxy-shutdown');
  }

  /** Counts one that another process has counted among `connections`, and continues what it knew. */
  resumed({ beganAt, tries }: Pick<SessionRecord, 'beganAt' | 'tries'>): void {
    const { loop } = this.port.worker;
    this.#beganMs = loop.nowMs - Math.max(0, loop.clock.wallNow() - beganAt);
    if (tries !== undefined) this.follows(new TryLog(tries));
    this.port.countActive(1, this.target);
    this.target?.member.taken();
  }

  /** Tries that led to it. */
  follows(tries: TryLog | undefined): void {
    this.#tries = tries;
  }

  /** The tries so far, to be continued. */
  protected get tries(): TryLog {
    this.#tries ??= new TryLog();
    return this.#tries;
  }

  /** For {@link record}, and for {@link resumed}. */
  protected account(): Pick<SessionRecord, 'beganAt' | 'tries'> {
    const { loop } = this.port.worker;
    return {
      beganAt: loop.clock.wallNow() - (loop.nowMs - this.#beganMs),
      ...(this.#tries && { tries: this.#tries.value }),
    };
  }

  /** Another worker goes on with it: nothing is closed. It still counts as active here. */
  protected detach(): void {
    this.isOver = true;
    this.cancelDeadline();
  }

  /** How long ago it began. */
  protected get ageMs(): number {
    return this.port.worker.loop.nowMs - this.#beganMs;
  }

  /** Every connection and flow ends here, once: returns false when it has ended before. */
  protected finish(ending: Ending): boolean {
    if (this.isOver) return false;
    this.detach();
    this.port.countActive(-1, this.target);
    this.target?.member.released();
    const { admission, connectionLog } = this.port.worker;
    admission.freed();
    if (connectionLog.isWanted) connectionLog.add(this.#entry(ending));
    return true;
  }

  #entry(ending: Ending): ConnectionEntry {
    const { name, protocol, worker } = this.port;
    return {
      name,
      protocol,
      client: this.client(),
      backend: this.target?.name,
      ending,
      endedAt: worker.loop.clock.wallNow(),
      durationMs: worker.loop.clock.now() - this.#beganMs,
      ...this.bytes(),
      tries: this.#tries?.value ?? NO_TRIES,
    };
  }
}

export function add(counters: Float64Array, counter: number, amount: number): void {
  counters[counter] = (counters[counter] as number) + amount;
}
