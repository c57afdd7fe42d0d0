import type { DialFailure } from '../../../model/data-plane.ts';
import { canSee } from '../../../services/known-clients.ts';
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
import { describeErrno, ECONNREFUSED, ECONNRESET, EINPROGRESS, EPIPE, isExhaustion } from '../../../sys/sys-error.ts';
import { Deadline } from '../../core/deadlines.ts';
import type { Attempt, Attempting, AttemptTerms } from '../../core/tcp-dial.ts';
import { LOST_CLIENT } from '../../errors.ts';
import { type KeptClient, SEARCHING } from '../../kept-dials.ts';
import { newPortSearch, type PortSearch } from '../../port-walk.ts';
import type { Handler } from './event-loop.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';
import type { DialResult } from './tcp-dial.ts';
import { SIDE_EVENTS } from './tcp-side.ts';

const CONNECTED = 0;

const peerAddress = new Memory(SOCKET_ADDRESS_BYTES);

/** Only a connection that had been established ends with these. */
const BROKEN: ReadonlySet<number> = new Set([ECONNRESET, EPIPE]);

/** The dial that an attempt belongs to. */
interface Dial extends Attempting<Target, DialResult> {
  readonly port: Port;
  /** If endpoints see its address. */
  readonly client: KeptClient | undefined;
  /** Handles the events of the descriptors. */
  readonly dialler: Handler;
}

/** An attempt of one worker. */
export class TcpAttempt implements Attempt<Target> {
  readonly #deadline = new Deadline(this);
  readonly target: Target;
  fd = -1;
  readonly #owner: Dial;
  readonly timeoutMs: number;
  /** The part of its time after which the owner is told, until then; else 0. */
  #quietMs: number;
  readonly #isSecond: boolean;
  /** It keeps the client's address and is not answered yet. */
  #isKept = false;
  /** Unless the socket cannot be used again. */
  kind: SocketKind | undefined;
  #beganMs = 0;
  /** Why it could not begin, if that was not for the endpoint. */
  #problem: string | undefined;
  #isOver = false;
  /** If it keeps the client's address. */
  #search: PortSearch | undefined;

  constructor(owner: Dial, target: Target, { timeoutMs, quietMs, isSecond = false }: AttemptTerms) {
    this.#isSecond = isSecond;
    this.#owner = owner;
    this.target = target;
    this.timeoutMs = timeoutMs;
    this.#quietMs = quietMs;
    target.taken();
  }

  get #port(): Port {
    return this.#owner.port;
  }

  get tookMs(): number {
    return this.#port.worker.loop.clock.now() - this.#beganMs;
  }

  begin(): DialFailure | undefined {
    const { target } = this;
    const { worker } = this.#port;
    const { loop, admission, endpointSockets } = worker;
    this.kind = this.#seenClient === undefined ? target.tcpKind : worker.keptDials.kindOf(target.endpoint);
    const parked = this.kind === undefined ? -1 : endpointSockets.takeTcp(this.kind);
    const fd = parked >= 0 ? parked : this.#open();
    if (isExhaustion(-fd)) {
      // Not the endpoint's fault: the client waits, and the worker accepts no others.
      admission.pause(this.#port, describeErrno(-fd));
      admission.await(this);
      return undefined;
    }
    this.#beganMs = loop.clock.now();
    const status = fd < 0 ? fd : this.#connect(fd, parked >= 0);
    if (status === SEARCHING) {
      loop.close(fd);
      loop.inNextTurn(this);
      return undefined;
    }
    this.fd = fd;
    if (hasFailed(status)) {
      this.leave();
      return this.#problem === undefined
        ? this.#port.dialFailed(target, -status, this.tookMs)
        : this.#port.dialPrevented(target, this.#problem);
    }
    if (status === CONNECTED) this.#answered(0, false);
    else loop.deadlines.after(this.#quietMs > 0 ? this.#quietMs : this.timeoutMs).start(this.#deadline, loop.nowMs);
    return undefined;
  }

  onDescriptor(): void {
    this.run();
  }

  /** Goes on where {@link begin} has left off. */
  run(): void {
    if (this.#isOver) return;
    const reason = this.begin();
    if (reason !== undefined) this.#owner.onFailed(this, reason);
  }

  onEvents(events: number): void {
    if (events & (EPOLLERR | EPOLLHUP)) {
      const errno = takeError(this.fd);
      if (BROKEN.has(errno)) this.#answered(events, true);
      else this.#fail(Math.abs(errno));
    } else if (events & EPOLLOUT) {
      if (this.#isToItself(this.fd)) this.#fail(ECONNREFUSED);
      else if (this.#hasLostClient()) this.#lost();
      else this.#answered(events, false);
    }
  }

  onDue(): void {
    if (this.#quietMs > 0) {
      const { loop } = this.#port.worker;
      loop.deadlines.after(this.timeoutMs - this.#quietMs).start(this.#deadline, loop.nowMs);
      this.#quietMs = 0;
      this.#owner.onQuiet(this);
      return;
    }
    const { client } = this.#owner;
    if (client !== undefined) client.needsNewPort = true;
    this.leave();
    this.#port.dialTimedOut(this.target, this.timeoutMs, this.tookMs);
    this.#owner.onFailed(this, 'timeout');
  }

  leave(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#deadline.cancel();
    const { worker } = this.#port;
    if (this.#isKept) {
      // It may have been answered just now: the endpoint must learn of its end.
      shutdownWrite(this.fd);
      worker.keptDials.forget('TCP', this.fd, this.target.endpoint);
    }
    if (this.fd >= 0) worker.loop.close(this.fd);
    this.fd = -1;
    this.target.released();
  }

  /** The client if this endpoint sees its address. */
  get #seenClient(): KeptClient | undefined {
    const { client } = this.#owner;
    return client !== undefined && canSee(this.target.endpoint.address, client.address) ? client : undefined;
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
    const { dialler } = this.#owner;
    const begun = this.#begin(fd, isUsed);
    const status = begun === -EINPROGRESS && this.#isAnsweredAtOnce(fd) ? CONNECTED : begun;
    if (hasFailed(status)) return status;
    if (status === CONNECTED && this.#isToItself(fd)) return -ECONNREFUSED;
    if (isUsed) {
      loop.renew(fd, dialler);
      return status;
    }
    const watched = loop.watch(fd, SIDE_EVENTS, dialler);
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
    const client = this.#seenClient;
    this.#problem = undefined;
    if (client === undefined) return connect(fd, address);
    const { keptDials } = this.#port.worker;
    this.#search ??= newPortSearch();
    const { status, problem } = keptDials.connectTcp(fd, endpoint, client, isUsed ? 'used' : 'new', this.#search);
    this.#problem = problem;
    this.#isKept = !hasFailed(status);
    return status;
  }

  #isToItself(fd: number): boolean {
    return this.#port.worker.endpointSockets.isToItself(fd, this.target);
  }

  #answered(events: number, isBroken: boolean): void {
    this.#isOver = true;
    this.#deadline.cancel();
    this.#owner.onAnswered(this, { fd: this.fd, events, isBroken, kind: this.kind });
  }

  #fail(errno: number): void {
    // Closed first: a connection that is established late must not stay open.
    this.leave();
    this.#owner.onFailed(this, this.#port.dialFailed(this.target, errno, this.tookMs));
  }

  #lost(): void {
    (this.#owner.client as KeptClient).needsNewPort = true;
    this.leave();
    if (this.#isSecond) this.#owner.onFailed(this, this.#port.dialPrevented(this.target, LOST_CLIENT));
    else this.#owner.onLost(this);
  }

  #hasLostClient(): boolean {
    if (!this.#isKept) return false;
    return this.#port.worker.keptDials.hasLost(this.fd, this.target.endpoint, this.#owner.client as KeptClient);
  }
}

function hasFailed(status: number): boolean {
  return status !== CONNECTED && status !== -EINPROGRESS;
}
