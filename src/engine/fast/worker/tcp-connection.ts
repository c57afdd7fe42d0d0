import type { DialFailure } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { ProxyProtocol } from '../../../model/service.ts';
import type { Candidates } from '../../../services/picker.ts';
import { EPOLLERR, EPOLLHUP, EPOLLOUT } from '../../../sys/epoll.ts';
import { must } from '../../../sys/sys-error.ts';
import type { SessionAccount } from '../../core/session.ts';
import { add, COUNTER } from '../../core/target.ts';
import { TcpConnection as CoreTcpConnection, type DialPlan } from '../../core/tcp-connection.ts';
import type { TcpDial } from '../../core/tcp-dial.ts';
import type { WaitRecord } from '../../core/waiting-room.ts';
import { askedFor, keptClient, keptTcpClient } from '../../kept-client.ts';
import type { KeptClient } from '../../kept-dials.ts';
import { AwayConnection } from './away-session.ts';
import type { DialTerms, Link, RemoteHome } from './link.ts';
import type { Port } from './port.ts';
import type { DiallingRecord, EstablishedRecord, SessionRecord } from './records.ts';
import type { WorkerSession } from './session.ts';
import type { Target } from './target.ts';
import { TcpAttempt } from './tcp-attempt.ts';
import { SIDE_EVENTS, TcpSide } from './tcp-side.ts';

/** A younger connection is not passed on: many are over by then. */
const MIN_AGE_TO_PASS_MS = 100;

/** If another worker is its home, which has accepted the client. */
export interface Passed {
  readonly home: RemoteHome;
  /** Until the endpoint has answered. */
  readonly terms?: DialTerms;
}

/** A connection of one worker. It handles the events of both descriptors, and may move to another worker or process. */
export class TcpConnection extends CoreTcpConnection<Target, Port, TcpSide> implements WorkerSession {
  readonly fd: number;
  declare protected home: RemoteHome | undefined;
  protected readonly clientSide: TcpSide;
  readonly #terms: DialTerms | undefined;
  /** Why this worker's dial for another one failed. */
  #failure: DialFailure | undefined;
  /** See {@link Spreading.count}. */
  #window = -1;

  /** `fd` is not watched yet. Next is {@link begin}, {@link dialAgain} or {@link resume}. */
  constructor(port: Port, fd: number, client: Endpoint | undefined, passed?: Passed) {
    super(port, client, passed?.home);
    this.fd = fd;
    this.clientSide = new TcpSide(this, fd, 'client');
    this.#terms = passed?.terms;
  }

  /** Another process or worker was dialling, or is to be helped with it. */
  dialAgain(known: SessionAccount, plan: DialPlan<Target>): void {
    this.resumed(known);
    this.dial(plan);
  }

  /** Its client has waited in another process. */
  waitAgain(known: SessionAccount, record: WaitRecord): void {
    this.resumed(known);
    this.awaitAgain(record);
  }

  /** Continues where another process or worker was. Throws a SysError when a descriptor cannot be watched. */
  resume(record: EstablishedRecord, target: Target): void {
    const { sides, broken } = record;
    const { loop } = this.port.worker;
    const [client, endpoint] = [this.clientSide, new TcpSide(this, sides[1].fd, 'endpoint')];
    this.join(target, endpoint);
    for (const { fd } of sides) loop.own(fd);
    client.resume(sides[0]);
    endpoint.resume(sides[1]);
    // Before anything can fail, so that its end counts, too.
    this.resumed(record);
    this.port.connectedTo(target);
    for (const { fd } of sides) must('epoll_ctl', loop.watch(fd, SIDE_EVENTS, this));
    this.goOn(broken && (broken === 'client' ? client : endpoint));
  }

  record(): SessionRecord {
    if (this.endpointSide === undefined) return this.#dialling();
    return {
      ...this.account(),
      kind: 'established',
      port: this.port.id,
      client: this.clientName,
      endpoint: (this.target as Target).endpoint,
      sides: [this.clientSide.record(), this.endpointSide.record()],
      broken: this.broken && (this.broken === this.clientSide ? 'client' : 'backend'),
    };
  }

  onEvents(events: number, fd: number): void {
    const { dialling, endpointSide } = this;
    if (endpointSide !== undefined) {
      const side = fd === this.fd ? this.clientSide : endpointSide;
      side.note(events);
      this.onSide(side, (events & EPOLLOUT) !== 0, (events & EPOLLERR) !== 0);
      this.#passOn();
    } else if (fd === this.fd) {
      this.clientSide.note(events);
      this.onSide(this.clientSide, false, (events & (EPOLLERR | EPOLLHUP)) !== 0);
    } else {
      const attempt = dialling?.attempt as TcpAttempt | undefined;
      (fd === attempt?.fd ? attempt : (dialling?.hedge as TcpAttempt | undefined))?.onEvents(events);
    }
  }

  onShutdown(): void {
    this.cut('proxy-shutdown');
  }

  override onGivenUp(reason: 'no-endpoints' | 'exhausted'): void {
    if (this.#terms === undefined) super.onGivenUp(reason);
    else this.#giveBack();
  }

  override onFailed(target: Target, reason: DialFailure): void {
    super.onFailed(target, reason);
    this.#failure = reason;
  }

  newAttempt(dial: TcpDial<Target>, target: Target, timeoutMs: number, quietMs: number): TcpAttempt {
    return new TcpAttempt(this, dial, target, timeoutMs, quietMs);
  }

  protected newSide({ fd, kind, events }: TcpAttempt): TcpSide {
    const side = new TcpSide(this, fd, 'endpoint', kind);
    side.note(events);
    return side;
  }

  protected override beginStreams(): void {
    const { clientSide } = this;
    const { clientsHaveSent } = this.port;
    if (clientsHaveSent.isWorthwhile) clientSide.isReadable = true;
    super.beginStreams();
    clientsHaveSent.note(clientSide.total > 0);
  }

  protected keptClient(client: Endpoint): KeptClient | 'unknown' | undefined {
    if (this.#terms !== undefined) return this.#terms.isSeen ? keptClient(client) : undefined;
    return keptTcpClient(this.port.worker.clients, this.port.keptAddresses, client, this.fd);
  }

  protected askedFor(client: Endpoint): Endpoint | undefined {
    return askedFor(client, this.fd);
  }

  protected override get proxyProtocol(): ProxyProtocol | undefined {
    return (this.#terms ?? this.port).proxyProtocol;
  }

  protected override watchClient(): boolean {
    return this.port.worker.loop.watch(this.fd, SIDE_EVENTS, this) >= 0;
  }

  /** Another worker dials, and goes on with it. */
  protected override isPassedOn(candidates: Candidates<Target>, kept: KeptClient | undefined): boolean {
    const { port } = this;
    const link = port.carrierForClient();
    if (link === undefined) return false;
    const target = candidates.next();
    if (target === undefined) return false;
    this.#passClient(link, target, kept !== undefined, candidates);
    return true;
  }

  #passClient(link: Link, target: Target, isSeen: boolean, candidates: Candidates<Target>): void {
    const { port } = this;
    target.taken();
    add(target.counters, COUNTER.active, 1);
    const record = this.#dialling();
    this.detach();
    const away = new AwayConnection(port, target, ({ record: known, reason }) => {
      const needsNewPort = reason === 'timeout';
      new TcpConnection(port, known.fd, known.client).dialAgain(known, { candidates, tries: 1, needsNewPort });
    });
    const terms = { proxyProtocol: port.proxyProtocol, isSeen };
    link.dial(away, { record, endpoint: target.endpoint, terms });
  }

  /** Another worker goes on with it, if this one has too much to do. */
  #passOn(): void {
    const { port, target, clientSide, endpointSide } = this;
    const { loop, spreading } = port.worker;
    this.#window = spreading.count(this.#window);
    if (!spreading.wants || !this.isOpen || this.isHalfOpen || this.ageMs < MIN_AGE_TO_PASS_MS) return;
    const link = port.carrierForConnection();
    if (link === undefined || target === undefined || endpointSide === undefined) return;
    const record = this.record() as EstablishedRecord;
    this.detach();
    for (const side of [clientSide, endpointSide]) {
      side.leave();
      loop.unwatch(side.fd);
    }
    link.carry(new AwayConnection(port, target), record);
  }

  /** Its home, which has accepted it, asks the next endpoint. */
  #giveBack(): void {
    const reason = this.#failure;
    if (reason === undefined || !this.home?.isThere) {
      this.cut('proxy-error');
      return;
    }
    const record = this.#dialling();
    this.dialling = undefined;
    this.detach();
    this.port.worker.loop.unwatch(this.fd);
    this.home.over({ kind: 'failed', record, reason });
  }

  #dialling(): DiallingRecord {
    const { id: port } = this.port;
    const { fd, waitRecord } = this;
    const client = this.clientName as Endpoint;
    return { ...this.account(), kind: 'dialling', port, fd, client, ...(waitRecord && { waiting: waitRecord }) };
  }
}
