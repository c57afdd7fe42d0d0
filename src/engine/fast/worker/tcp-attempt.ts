import { EPOLLERR, EPOLLHUP, EPOLLOUT } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import {
  connect,
  getpeername,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  shutdownWrite,
  socket,
  takeError,
} from '../../../sys/socket.ts';
import {
  describeErrno,
  ECONNREFUSED,
  ECONNRESET,
  EINPROGRESS,
  EPIPE,
  errnoName,
  isExhaustion,
} from '../../../sys/sys-error.ts';
import { TcpAttempt as CoreTcpAttempt, type TcpDial } from '../../core/tcp-dial.ts';
import { dialFailureOf } from '../../errors.ts';
import { type KeptClient, SEARCHING } from '../../kept-dials.ts';
import { newPortSearch, type PortSearch } from '../../port-walk.ts';
import type { Handler } from './event-loop.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';
import { SIDE_EVENTS } from './tcp-side.ts';

const CONNECTED = 0;

const peerAddress = new Memory(SOCKET_ADDRESS_BYTES);

/** Only a connection that had been established ends with these. */
const BROKEN: ReadonlySet<number> = new Set([ECONNRESET, EPIPE]);

/** An attempt of one worker. */
export class TcpAttempt extends CoreTcpAttempt<Target> {
  fd = -1;
  /** Unless the socket cannot be used again. */
  kind: SocketKind | undefined;
  /** What it has had when it was answered. */
  events = 0;
  /** Handles the events of the descriptor. */
  readonly #handler: Handler;
  readonly #port: Port;
  /** Why it could not begin, if that was not for the endpoint. */
  #problem: string | undefined;
  /** If it keeps the client's address. */
  #search: PortSearch | undefined;

  constructor(
    connection: Handler & { readonly port: Port },
    dial: TcpDial<Target>,
    target: Target,
    timeoutMs: number,
    quietMs: number,
  ) {
    super(dial, target, timeoutMs, quietMs);
    this.#handler = connection;
    this.#port = connection.port;
  }

  begin(): void {
    const { target } = this;
    const { worker } = this.#port;
    const { loop, admission, endpointSockets } = worker;
    this.kind = this.seenClient === undefined ? target.tcpKind : worker.keptDials.kindOf(target.endpoint);
    const parked = this.kind === undefined ? -1 : endpointSockets.takeTcp(this.kind);
    const fd = parked >= 0 ? parked : this.#open();
    if (isExhaustion(-fd)) {
      // Not the endpoint's fault: the client waits, and the worker accepts no others.
      admission.pause(this.#port, describeErrno(-fd));
      admission.await(this);
      return;
    }
    this.begun();
    const status = fd < 0 ? fd : this.#connect(fd, parked >= 0);
    if (status === SEARCHING) {
      loop.close(fd);
      loop.inNextTurn(this);
      return;
    }
    this.fd = fd;
    if (status === CONNECTED) this.answered(false);
    else if (status === -EINPROGRESS) this.awaitAnswer();
    else if (this.#problem === undefined) this.#failBy(-status);
    else this.fail('other', this.#problem);
  }

  /** Goes on where {@link begin} has left off. */
  run(): void {
    if (!this.isOver) this.begin();
  }

  onEvents(events: number): void {
    this.events = events;
    if (events & (EPOLLERR | EPOLLHUP)) {
      const errno = takeError(this.fd);
      if (BROKEN.has(errno)) this.answered(true);
      else this.#failBy(Math.abs(errno));
    } else if (events & EPOLLOUT) {
      if (this.#isToItself(this.fd)) this.#failBy(ECONNREFUSED);
      else this.onHandshake();
    }
  }

  protected hangUp(): void {
    if (this.fd < 0) return;
    const { worker } = this.#port;
    if (this.isKept) {
      // It may have been answered just now: the endpoint must learn of its end.
      shutdownWrite(this.fd);
      worker.keptDials.forget('TCP', this.fd, this.target.endpoint);
    }
    worker.loop.close(this.fd);
    this.fd = -1;
    this.#search = undefined;
  }

  protected hasLostClient(client: KeptClient): boolean {
    return this.#port.worker.keptDials.hasLost(this.fd, this.target.endpoint, client);
  }

  /** A new socket, or a negative errno. */
  #open(): number {
    const { loop, admission, endpointSockets } = this.#port.worker;
    const { family } = this.target;
    let fd = socket(family, SOCK_STREAM);
    if (isExhaustion(-fd) && admission.makeRoom()) fd = socket(family, SOCK_STREAM);
    if (fd < 0) return fd;
    loop.own(fd);
    endpointSockets.prepare(fd, endpointSockets.tcpOptions);
    return fd;
  }

  /**
   * {@link CONNECTED}, or a negative errno: EINPROGRESS while it is under way, else the failure. `isUsed`: it had
   * another connection before.
   */
  #connect(fd: number, isUsed: boolean): number {
    const { loop } = this.#port.worker;
    const begun = this.#begin(fd, isUsed);
    const status = begun === -EINPROGRESS && this.#isAnsweredAtOnce(fd) ? CONNECTED : begun;
    if (hasFailed(status)) return status;
    if (status === CONNECTED && this.#isToItself(fd)) return -ECONNREFUSED;
    if (isUsed) {
      loop.renew(fd, this.#handler);
      return status;
    }
    const watched = loop.watch(fd, SIDE_EVENTS, this.#handler);
    return watched < 0 ? watched : status;
  }

  /**
   * The handshake with an endpoint on this node ends within the call, although the result says otherwise. Asking for
   * the peer saves a turn. (A second connect would lose the bytes that came before a reset.)
   */
  #isAnsweredAtOnce(fd: number): boolean {
    const { answersAtOnce } = this.target;
    const isAnswered = answersAtOnce.isWorthwhile && getpeername(fd, peerAddress) === 0;
    answersAtOnce.note(isAnswered);
    return isAnswered;
  }

  /** As `connect` does. */
  #begin(fd: number, isUsed: boolean): number {
    const { endpoint, address } = this.target;
    const client = this.seenClient;
    this.#problem = undefined;
    if (client === undefined) return connect(fd, address);
    const { keptDials } = this.#port.worker;
    this.#search ??= newPortSearch();
    const { status, problem } = keptDials.connectTcp(fd, endpoint, client, isUsed ? 'used' : 'new', this.#search);
    this.#problem = problem;
    this.isKept = !hasFailed(status);
    return status;
  }

  #failBy(errno: number): void {
    this.fail(dialFailureOf(errnoName(errno)), describeErrno(errno));
  }

  #isToItself(fd: number): boolean {
    return this.#port.worker.endpointSockets.isToItself(fd, this.target);
  }
}

function hasFailed(status: number): boolean {
  return status !== CONNECTED && status !== -EINPROGRESS;
}
