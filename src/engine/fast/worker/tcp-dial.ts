import type { DialFailure } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { canSee } from '../../../services/known-clients.ts';
import { dialTimeoutMs, LONGEST_DIALLING_MS, type Pick } from '../../../services/picker.ts';
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
import { ECONNREFUSED, ECONNRESET, EINPROGRESS, EPIPE, isExhaustion } from '../../../sys/sys-error.ts';
import { LOST_CLIENT } from '../../errors.ts';
import type { KeptClient } from '../../kept-dials.ts';
import { Deadline } from './deadlines.ts';
import { TCP_OPTIONS } from './endpoint-sockets.ts';
import type { Target } from './endpoints.ts';
import type { Handler } from './event-loop.ts';
import type { Port } from './port.ts';
import { SIDE_EVENTS } from './tcp-side.ts';

const CONNECTED = 0;

const peerAddress = new Memory(SOCKET_ADDRESS_BYTES);

/** Only a connection that had been established ends with these. */
const BROKEN: ReadonlySet<number> = new Set([ECONNRESET, EPIPE]);

/** `fd` is connected, watched for {@link SIDE_EVENTS}, and the dialler's from now on. */
export interface DialResult {
  readonly target: Target;
  readonly fd: number;
  /** What it has had. */
  readonly events: number;
  /** It was connected and has been reset already. No event will report that again. */
  readonly isBroken: boolean;
}

/** A dial ends with one of the two calls, unless it is cancelled. The dialler handles the events of the descriptors. */
export interface Dialler extends Handler {
  onConnected(result: DialResult): void;
  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void;
  /** One endpoint did not answer. */
  onFailed(target: Target, reason: DialFailure): void;
  /** Another one is tried. */
  onRetry(): void;
}

interface TcpDialSetup {
  readonly port: Port;
  readonly pick: Pick;
  readonly client: KeptClient | undefined;
  readonly dialler: Dialler;
}

/** Tries a pick's candidates one after another until one answers. */
export class TcpDial extends Deadline {
  readonly #port: Port;
  readonly #pick: Pick;
  readonly #client: KeptClient | undefined;
  readonly #dialler: Dialler;
  readonly #startedMs: number;
  #attempts = 0;
  #target: Target | undefined;
  #fd = -1;
  /** The current attempt keeps the client's address and is not answered yet. */
  #isKept = false;
  #beganMs = 0;
  /** Why the attempt could not begin, if that was not for the endpoint. */
  #problem: string | undefined;
  #isOver = false;

  /** `client`: if endpoints see its address. */
  constructor({ port, pick, client, dialler }: TcpDialSetup) {
    super();
    this.#client = client;
    this.#port = port;
    this.#pick = pick;
    this.#dialler = dialler;
    this.#startedMs = port.worker.loop.nowMs;
  }

  /** The endpoint of the current attempt. */
  get endpoint(): Endpoint | undefined {
    return this.#target?.endpoint;
  }

  /** May be over before it returns. */
  start(): void {
    // A loop, not a recursion: each of many endpoints may fail at once.
    for (;;) {
      const isLate = this.#attempts > 0 && this.#port.worker.loop.nowMs - this.#startedMs >= LONGEST_DIALLING_MS;
      const member = isLate ? undefined : this.#pick.next();
      if (member === undefined) {
        this.#isOver = true;
        this.#dialler.onGivenUp(this.#attempts === 0 ? 'no-endpoints' : 'exhausted');
        return;
      }
      this.#target = this.#port.endpoints.target(member);
      member.taken();
      if (this.#attempts++ > 0) {
        this.#port.count('retries', this.#target);
        this.#dialler.onRetry();
      }
      if (this.#try(this.#target)) return;
    }
  }

  cancel(): void {
    this.#isOver = true;
    this.#leave();
  }

  /** `events`: of the descriptor that is being connected. */
  onEvents(events: number): void {
    if (events & (EPOLLERR | EPOLLHUP)) {
      const errno = takeError(this.#fd);
      if (BROKEN.has(errno)) this.#connected(events, true);
      else this.#fail(Math.abs(errno));
    } else if (events & EPOLLOUT) {
      if (this.#isToItself(this.#fd, this.#target as Target)) this.#fail(ECONNREFUSED);
      else if (this.#hasLostClient()) this.#failFor(LOST_CLIENT);
      else this.#connected(events, false);
    }
  }

  onDue(): void {
    if (this.#client !== undefined) this.#client.hasWaited = true;
    const target = this.#leave() as Target;
    this.#port.dialTimedOut(target, dialTimeoutMs(this.#attempts - 1));
    this.#dialler.onFailed(target, 'timeout');
    this.start();
  }

  onDescriptor(): void {
    if (!this.#isOver && !this.#try(this.#target as Target)) this.start();
  }

  /** False when the attempt has failed at once. */
  #try(target: Target): boolean {
    const { loop, admission } = this.#port.worker;
    const fd = socket(target.family, SOCK_STREAM);
    if (isExhaustion(-fd)) {
      // Not the endpoint's fault: the client waits, and the worker accepts no others.
      admission.pause(this.#port);
      admission.await(this);
      return true;
    }
    if (fd >= 0) {
      loop.own(fd);
      admission.opened(fd, this.#port);
    }
    this.#beganMs = loop.clock.now();
    const status = fd < 0 ? fd : this.#connect(fd, target);
    this.#fd = fd;
    if (hasFailed(status)) {
      this.#leave();
      const reason =
        this.#problem === undefined
          ? this.#port.dialFailed(target, -status)
          : this.#port.dialPrevented(target, this.#problem);
      this.#dialler.onFailed(target, reason);
      return false;
    }
    if (status === CONNECTED) this.#connected(0, false);
    else loop.deadlines.after(dialTimeoutMs(this.#attempts - 1)).start(this, loop.nowMs);
    return true;
  }

  /** {@link CONNECTED}, or a negative errno: EINPROGRESS while it is under way, else the failure. */
  #connect(fd: number, target: Target): number {
    const { loop, endpointSockets } = this.#port.worker;
    endpointSockets.prepare(fd, TCP_OPTIONS);
    const begun = this.#begin(fd, target);
    // The handshake with an endpoint on this node ends within the call, although the result says otherwise. Asking for
    // the peer saves a turn. (A second connect would lose the bytes that came before a reset.)
    const status = begun === -EINPROGRESS && getpeername(fd, peerAddress) === 0 ? CONNECTED : begun;
    if (hasFailed(status)) return status;
    if (status === CONNECTED && this.#isToItself(fd, target)) return -ECONNREFUSED;
    const watched = loop.watch(fd, SIDE_EVENTS, this.#dialler);
    return watched < 0 ? watched : status;
  }

  /** As `connect` does. */
  #begin(fd: number, { endpoint, address }: Target): number {
    const client = this.#client;
    this.#problem = undefined;
    if (client === undefined || !canSee(endpoint.address, client.address)) return connect(fd, address);
    const { keptDials } = this.#port.worker;
    const begun = keptDials.connectTcp(fd, endpoint, client);
    this.#problem = keptDials.problem;
    this.#isKept = !hasFailed(begun);
    return begun;
  }

  #isToItself(fd: number, target: Target): boolean {
    return this.#port.worker.endpointSockets.isToItself(fd, target);
  }

  #connected(events: number, isBroken: boolean): void {
    this.cancelDeadline();
    this.#isOver = true;
    this.#isKept = false;
    const target = this.#target as Target;
    this.#port.joined(target, this.#port.worker.loop.clock.now() - this.#beganMs);
    this.#dialler.onConnected({ target, fd: this.#fd, events, isBroken });
  }

  #fail(errno: number): void {
    // Closed first: a connection that is established late must not stay open.
    const target = this.#leave() as Target;
    this.#dialler.onFailed(target, this.#port.dialFailed(target, errno));
    this.start();
  }

  #failFor(err: string): void {
    this.#port.dialPrevented(this.#leave() as Target, err);
    this.start();
  }

  #hasLostClient(): boolean {
    if (!this.#isKept) return false;
    const { endpoint } = this.#target as Target;
    return this.#port.worker.keptDials.hasLost(this.#fd, endpoint, this.#client as KeptClient);
  }

  /** Ends the current attempt, if there is one. */
  #leave(): Target | undefined {
    this.cancelDeadline();
    const { worker } = this.#port;
    if (this.#isKept) {
      // It may have been answered just now: the endpoint must learn of its end.
      shutdownWrite(this.#fd);
      worker.keptDials.forget('TCP', this.#fd, (this.#target as Target).endpoint);
    }
    this.#isKept = false;
    if (this.#fd >= 0) worker.loop.close(this.#fd);
    this.#fd = -1;
    const target = this.#target;
    target?.member.released();
    this.#target = undefined;
    return target;
  }
}

function hasFailed(status: number): boolean {
  return status !== CONNECTED && status !== -EINPROGRESS;
}
