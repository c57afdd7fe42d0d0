import type { Ending } from '../../../model/connection-log.ts';
import type { DialFailure, OpenConnection } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { ProxyProtocol } from '../../../model/service.ts';
import type { Candidates } from '../../../services/picker.ts';
import { EPOLLERR, EPOLLHUP, EPOLLOUT } from '../../../sys/epoll.ts';
import { shutdownWrite, unacknowledgedBytes } from '../../../sys/socket.ts';
import { must } from '../../../sys/sys-error.ts';
import { wholeMsLeft } from '../../../util/clock.ts';
import type { SessionAccount } from '../../core/session.ts';
import { add, COUNTER } from '../../core/target.ts';
import { askedFor, keptClient, keptTcpClient } from '../../kept-client.ts';
import type { KeptClient } from '../../kept-dials.ts';
import { proxyHeader } from '../../proxy-header.ts';
import { AwayConnection } from './away-session.ts';
import type { DialTerms, Errand, Link } from './link.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { Port } from './port.ts';
import type { DiallingRecord, EstablishedRecord, SessionRecord } from './records.ts';
import { Session } from './session.ts';
import type { Target } from './target.ts';
import { type DialResult, TcpDial } from './tcp-dial.ts';
import { SIDE_EVENTS, type SideOwner, TcpSide } from './tcp-side.ts';

/** How long bytes that were sent before a reset may take to arrive, and how often to check. */
const RESET_PATIENCE_MS = 1000;
const RESET_POLL_MS = 10;

/** A younger connection is not passed on: many are over by then. */
const MIN_AGE_TO_PASS_MS = 100;

/** How a client gets its endpoint. */
export interface DialPlan {
  readonly candidates: Candidates<Target>;
  /** What another process or worker knows of the client; missing when it was accepted just now. */
  readonly known?: SessionAccount;
  /** Endpoints that were tried before. */
  readonly tries?: number;
  /** An answer to an earlier dial may come late. */
  readonly needsNewPort?: boolean;
  /** Of its home, if that is another worker. */
  readonly terms?: DialTerms;
}

/**
 * One client, from accept to the end of both sides: it dials ({@link TcpDial}), then {@link TcpSide} moves the bytes of
 * each direction. It handles the events of both descriptors.
 *
 * A reset or failure of one side becomes a reset of the other, never a clean end: a peer must not take half a stream
 * for the whole. Bytes that were sent before the reset arrive first, as without a proxy. The same holds when this
 * program ends a connection, or a client gets no endpoint: a clean end would look like an empty answer.
 */
export class TcpConnection extends Session implements SideOwner {
  target: Target | undefined;
  readonly #client: TcpSide;
  #backend: TcpSide | undefined;
  /** See {@link TcpAttempt.kind}. */
  #backendKind: SocketKind | undefined;
  /** While dialling. */
  #dial: TcpDial | undefined;
  /** Kept, because the kernel forgets it when a client resets the connection. */
  readonly #clientName: Endpoint | undefined;
  /** One side has ended its direction: something must move. */
  #isHalfOpen = false;
  /** The side that broke, while the other still gets what was sent before. */
  #broken: TcpSide | undefined;
  #giveUpMs = 0;
  /** Which end was passed on first, or which side broke. */
  #ending: Ending = 'client-end';
  /** If another worker, its home, has accepted the client. */
  #terms: DialTerms | undefined;
  /** Why this worker's dial for another one failed. */
  #failure: DialFailure | undefined;
  /** See {@link Spreading.count}. */
  #window = -1;

  /** `clientFd` is not watched yet. Next is {@link dial} or {@link resume}. `errand`: if another worker is its home. */
  constructor(port: Port, clientFd: number, client: Endpoint | undefined, errand?: Errand) {
    super(port, clientFd, errand);
    this.#clientName = client;
    this.#client = new TcpSide(this, clientFd, 'client');
  }

  /** Finds an endpoint for its client. May be over before this returns. */
  dial({ candidates, known, tries = 0, needsNewPort = false, terms }: DialPlan): void {
    this.#terms = terms;
    if (known === undefined) this.begun();
    else this.resumed(known);
    const kept = this.#keptClient();
    if (kept === 'unknown') {
      this.cut('client-reset');
      return;
    }
    const { loop } = this.port.worker;
    const link = known === undefined ? this.port.carrierForClient() : undefined;
    if (link !== undefined) {
      this.#passClient(link, candidates, kept !== undefined);
      return;
    }
    if (loop.watch(this.fd, SIDE_EVENTS, this) < 0) {
      this.cut('proxy-error');
      return;
    }
    if (kept !== undefined && needsNewPort) kept.needsNewPort = true;
    this.#dial = new TcpDial(this.port, kept, { candidates, tries, dialler: this });
    this.#dial.start();
  }

  /** Continues where another process or worker was. Throws a SysError when a descriptor cannot be watched. */
  resume(record: EstablishedRecord, target: Target): void {
    const {
      sides: [client, backend],
      broken,
    } = record;
    const { loop } = this.port.worker;
    this.#join(target, new TcpSide(this, backend.fd, 'endpoint'));
    for (const [side, record] of [
      [this.#client, client],
      [this.#backend as TcpSide, backend],
    ] as const) {
      loop.own(record.fd);
      side.resume(record);
    }
    // Before anything can fail, so that its end counts, too.
    this.resumed(record);
    this.port.connectedTo(target);
    for (const { fd } of [client, backend]) must('epoll_ctl', loop.watch(fd, SIDE_EVENTS, this));
    if (broken !== undefined) {
      this.#broken = broken === 'client' ? this.#client : this.#backend;
      this.#ending = broken === 'client' ? 'client-reset' : 'backend-reset';
      this.#giveUpMs = loop.nowMs + RESET_PATIENCE_MS;
      this.#wait(RESET_POLL_MS);
    } else if (client.isShut || backend.isShut) {
      this.#ending = backend.isShut ? 'client-end' : 'backend-end';
      this.#beginHalfOpen();
    }
  }

  record(): SessionRecord {
    if (this.#backend === undefined) return this.#dialling();
    return {
      ...this.account(),
      kind: 'established',
      port: this.port.id,
      client: this.#clientName,
      endpoint: (this.target as Target).endpoint,
      sides: [this.#client.record(), this.#backend.record()],
      broken: this.#broken && (this.#broken === this.#client ? 'client' : 'backend'),
    };
  }

  describe(): OpenConnection | undefined {
    const client = this.#clientName;
    if (client === undefined) return undefined;
    if (this.target === undefined) return { client, endpoint: this.#dial?.endpoint, state: 'dialling' };
    const { endpoint } = this.target;
    const endMs = this.#broken === undefined ? this.timer.dueMs : this.#giveUpMs;
    if (this.#broken === undefined && !this.#isHalfOpen) return { client, endpoint, state: 'established' };
    return { client, endpoint, state: 'half-closed', expiresMs: wholeMsLeft(endMs - this.port.worker.loop.nowMs) };
  }

  onEvents(events: number, fd: number): void {
    if (this.#dial === undefined) {
      this.#onSide(fd === this.fd ? this.#client : (this.#backend as TcpSide), events);
      this.#passOn();
    } else if (fd !== this.fd) {
      this.#dial.onEvents(events, fd);
    } else {
      this.#client.note(events);
      // The client reset the connection. One that has only ended its direction still wants an answer.
      if (events & (EPOLLERR | EPOLLHUP)) this.#end('client-reset');
    }
  }

  onConnected(target: Target, { fd, events, isBroken, kind }: DialResult): void {
    this.errand?.answered();
    const client = this.#client;
    const backend = new TcpSide(this, fd, 'endpoint');
    this.#dial = undefined;
    this.#backendKind = kind;
    this.#join(target, backend);
    this.answeredBy(target);
    if (isBroken) {
      this.#breakOff(backend);
      return;
    }
    const { proxyProtocol } = this.#terms ?? this.port;
    if (proxyProtocol !== undefined && !this.#introduce(proxyProtocol)) return;
    const { clientsHaveSent } = this.port;
    if (clientsHaveSent.isWorthwhile) client.isReadable = true;
    this.#pump(client);
    clientsHaveSent.note(client.total > 0);
    if (!this.isOver) this.#onSide(backend, events);
  }

  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void {
    if (this.#terms !== undefined) {
      this.#giveBack();
      return;
    }
    this.port.clientRefused((this.#clientName as Endpoint).address, reason);
    this.cut(`refused-${reason}`);
  }

  onFailed({ name }: Target, reason: DialFailure): void {
    this.tries.fail(name, reason);
    if (this.#terms !== undefined) this.#failure = reason;
  }

  onRetry(): void {
    this.tries.retries++;
  }

  onPortion(side: TcpSide): void {
    if (this.isOver) return;
    if (this.#broken === undefined) this.#pump(side);
    else this.#settle();
  }

  onDead(side: TcpSide): void {
    if (this.#isOpen()) this.#breakOff(side, 'proxy-dead');
  }

  moved(): void {
    if (this.#isHalfOpen) this.#wait(this.port.worker.options.tcpHalfOpenTimeoutMs);
  }

  onDue(): void {
    if (this.#broken !== undefined) this.#settle();
    else this.#endHalfOpen();
  }

  cut(ending: Ending): void {
    this.#over(ending, (fd) => this.port.worker.loop.reset(fd));
  }

  protected client(): Endpoint | undefined {
    return this.#clientName;
  }

  protected bytes() {
    return { receivedBytes: this.#client.total, sentBytes: this.#backend?.total ?? 0 };
  }

  #keptClient(): KeptClient | 'unknown' | undefined {
    const client = this.#clientName as Endpoint;
    if (this.#terms !== undefined) return this.#terms.isSeen ? keptClient(client) : undefined;
    return keptTcpClient(this.port.worker.clients, this.port.keptAddresses, client, this.fd);
  }

  /** Another worker dials, and goes on with it. */
  #passClient(link: Link, candidates: Candidates<Target>, isSeen: boolean): void {
    const { port } = this;
    const target = candidates.next();
    if (target === undefined) {
      this.onGivenUp('no-endpoints');
      return;
    }
    target.taken();
    add(target.counters, COUNTER.active, 1);
    const record = this.#dialling();
    this.detach();
    const away = new AwayConnection(port, target, ({ record: known, reason }) => {
      const needsNewPort = reason === 'timeout';
      new TcpConnection(port, known.fd, known.client).dial({ candidates, known, tries: 1, needsNewPort });
    });
    const terms = { proxyProtocol: port.proxyProtocol, isSeen };
    link.dial(away, { record, endpoint: target.endpoint, terms });
  }

  /** Another worker goes on with it, if this one has too much to do. */
  #passOn(): void {
    const { port, target } = this;
    const { loop, spreading } = port.worker;
    this.#window = spreading.count(this.#window);
    if (!spreading.wants || !this.#isOpen() || this.#isHalfOpen || this.ageMs < MIN_AGE_TO_PASS_MS) return;
    const link = port.carrierForConnection();
    if (link === undefined || target === undefined) return;
    const record = this.record() as EstablishedRecord;
    this.detach();
    for (const side of [this.#client, this.#backend as TcpSide]) {
      side.leave();
      loop.unwatch(side.fd);
    }
    link.carry(new AwayConnection(port, target), record);
  }

  /** Its home, which has accepted it, asks the next endpoint. */
  #giveBack(): void {
    const reason = this.#failure;
    if (reason === undefined || !this.errand?.isHomeThere) {
      this.cut('proxy-error');
      return;
    }
    const record = this.#dialling();
    this.#dial = undefined;
    this.detach();
    this.port.worker.loop.unwatch(this.fd);
    this.errand.over({ kind: 'failed', record, reason });
  }

  #dialling(): DiallingRecord {
    const { id: port } = this.port;
    return { ...this.account(), kind: 'dialling', port, fd: this.fd, client: this.#clientName as Endpoint };
  }

  /**
   * Puts the PROXY protocol's header before all that the endpoint gets. False when the connection is over, because the
   * client has gone. Without a header, a client could pass off its own bytes as one.
   */
  #introduce(version: ProxyProtocol): boolean {
    const client = this.#clientName;
    const destination = client && askedFor(client, this.fd);
    if (client === undefined || destination === undefined) {
      this.#end('client-reset');
      return false;
    }
    this.#client.beginWith(proxyHeader(version, client, destination));
    return true;
  }

  #join(target: Target, backend: TcpSide): void {
    this.target = target;
    this.#backend = backend;
    backend.peer = this.#client;
    this.#client.peer = backend;
  }

  #isOpen(): boolean {
    return !this.isOver && this.#broken === undefined;
  }

  #onSide(side: TcpSide, events: number): void {
    side.note(events);
    if (this.#broken !== undefined) {
      this.#settle();
      return;
    }
    if (side.isReadable) this.#pump(side);
    const peer = side.peer as TcpSide;
    if (events & EPOLLOUT && peer.pending > 0 && this.#isOpen()) this.#pump(peer);
    // The pump did not read the error: the stream had ended before, or waits for the other side.
    if (events & EPOLLERR && this.#isOpen()) this.#breakOff(side);
  }

  #pump(side: TcpSide): void {
    const broken = side.pump();
    if (broken !== undefined) {
      this.#breakOff(broken);
      return;
    }
    const peer = side.peer as TcpSide;
    if (!side.hasEnded || side.pending > 0) {
      // Its end waits behind bytes that the peer does not take.
      if (side.endIsNear && !this.#isHalfOpen) this.#beginHalfOpen();
      return;
    }
    if (peer.isShut) return;
    if (peer.hasEnded && peer.pending === 0) {
      if (!side.isShut) this.#ending = this.#endOf(peer);
      this.#bothEnded();
      return;
    }
    // Fails only for a broken side, which has an event of its own.
    shutdownWrite(peer.fd);
    if (!side.isShut) this.#ending = this.#endOf(side);
    peer.isShut = true;
    peer.wasSent();
    this.#beginHalfOpen();
  }

  #endOf(side: TcpSide): Ending {
    return side === this.#client ? 'client-end' : 'backend-end';
  }

  #beginHalfOpen(): void {
    this.#isHalfOpen = true;
    this.moved();
  }

  /**
   * A side that has received the other's end is closed: the kernel then delivers the bytes that a slow reader has not
   * read yet. A side that has not is reset, so that it does not take what it has for the whole stream.
   */
  #endHalfOpen(): void {
    const { loop } = this.port.worker;
    this.#over('proxy-idle', (fd, side) => {
      if (side.isShut) loop.close(fd);
      else loop.reset(fd);
    });
  }

  #breakOff(side: TcpSide, ending: Ending = side === this.#client ? 'client-reset' : 'backend-reset'): void {
    this.#ending = ending;
    if (side === this.#backend) this.port.count('resets', this.target);
    this.#broken = side;
    // The kernel reports the error before it gives out the last bytes.
    side.isReadable = !side.hasEnded;
    this.#isHalfOpen = false;
    side.peer?.release();
    this.#giveUpMs = this.port.worker.loop.nowMs + RESET_PATIENCE_MS;
    this.#settle();
  }

  /**
   * Passes on what the broken side had sent, then the reset. It waits until the peer has acknowledged everything,
   * because a reset makes the kernel drop queued bytes.
   */
  #settle(): void {
    const side = this.#broken as TcpSide;
    const peer = side.peer as TcpSide;
    const isPeerBroken = side.pump() === peer;
    const isRead = !side.isReadable || side.hasEnded;
    const isDelivered = isRead && side.pending === 0 && unacknowledgedBytes(peer.fd) <= 0;
    if (isPeerBroken || isDelivered || this.port.worker.loop.nowMs >= this.#giveUpMs) this.cut(this.#ending);
    else this.#wait(RESET_POLL_MS);
  }

  #wait(ms: number): void {
    const { loop } = this.port.worker;
    loop.deadlines.after(ms).start(this.timer, loop.nowMs);
  }

  /** Both have ended their direction, and have been sent all. */
  #bothEnded(): void {
    const { loop, endpointSockets } = this.port.worker;
    this.#over(this.#ending, (fd, { isShut }) => {
      if (fd === this.fd) loop.close(fd);
      else endpointSockets.parkTcp(fd, this.#backendKind, isShut);
    });
  }

  /** A clean end of both sides; the kernel delivers the bytes that it holds. */
  #end(ending: Ending): void {
    this.#over(ending, (fd) => this.port.worker.loop.close(fd));
  }

  #over(ending: Ending, close: (fd: number, side: TcpSide) => void): void {
    if (!this.finish(ending)) return;
    this.errand?.over({ kind: 'ended' });
    this.#dial?.cancel();
    this.#dial = undefined;
    for (const side of [this.#client, this.#backend]) {
      if (side === undefined) continue;
      side.release();
      close(side.fd, side);
    }
  }
}
