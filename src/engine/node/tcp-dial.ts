import { connect, Socket } from 'node:net';
import type { DialFailure } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { canSee } from '../../services/known-clients.ts';
import type { Pick } from '../../services/picker.ts';
import { dialTimeoutMs, LONGEST_DIALLING_MS } from '../../services/picker.ts';
import type { Timer } from '../../util/clock.ts';
import { errnoOf, LOST_CLIENT } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import { newPortSearch, type PortSearch } from '../port-walk.ts';
import { STILL_SEARCHING } from './keeper.ts';
import { connectedToItself, type OpenSocket, type Port, type Target } from './port.ts';

/**
 * For both sides of a connection. No delay and keepalive after 15 s are what Go's `net` package sets by default, and so
 * what upstream has; Node sets neither. Without `allowHalfOpen` Node would answer the end of one direction with the end
 * of the other.
 */
export const TCP_OPTIONS = {
  allowHalfOpen: true,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: 15_000,
} as const;

/**
 * The endpoint had accepted the connection and reset it: no reason to try another endpoint. Only timing decides whether
 * this shows here or as a read error. (A reset before the end of the handshake is a refusal, ECONNREFUSED.)
 */
const WAS_ACCEPTED: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);

/** A dial ends with one of the three calls, unless it is cancelled. */
export interface Dialler {
  /**
   * The socket reads already, so listeners must be added in this call. `rest` will hold what was received and not read
   * when the connection breaks.
   */
  onConnected(backend: Socket, target: Target, rest: readonly Buffer[]): void;
  /** The endpoint accepted, sent `rest`, and reset the connection before anything could be done with it. */
  onReset(target: Target, rest: readonly Buffer[]): void;
  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void;
  /** One endpoint did not answer. */
  onFailed(endpoint: Endpoint, reason: DialFailure): void;
  /** Another one is tried. */
  onRetry(): void;
}

interface TcpDialSetup {
  readonly port: Port;
  readonly pick: Pick;
  readonly client: KeptClient | undefined;
  readonly dialler: Dialler;
}

/**
 * Tries a pick's candidates one after another until one answers. If the first is silent, a second may be tried at the
 * same time ({@link Port.mayHedge}); the first to answer is used.
 */
export class TcpDial {
  readonly #port: Port;
  readonly #pick: Pick;
  readonly #client: KeptClient | undefined;
  readonly #dialler: Dialler;
  readonly #startedMs: number;
  #tries = 0;
  #attempt: Attempt | undefined;
  #hedge: Attempt | undefined;
  #quietTimer: Timer | undefined;

  /** `client`: if endpoints see its address. */
  constructor({ port, pick, client, dialler }: TcpDialSetup) {
    this.#client = client;
    this.#port = port;
    this.#pick = pick;
    this.#dialler = dialler;
    this.#startedMs = port.setup.clock.now();
  }

  /** Of the current attempt. */
  get endpoint(): Endpoint | undefined {
    return (this.#attempt ?? this.#hedge)?.target.member.endpoint;
  }

  /** May give up before it returns. */
  start(): void {
    const { clock } = this.#port.setup;
    const isLate = this.#tries > 0 && clock.now() - this.#startedMs >= LONGEST_DIALLING_MS;
    const member = isLate ? undefined : this.#pick.next();
    if (member === undefined) {
      this.#dialler.onGivenUp(this.#tries === 0 ? 'no-endpoints' : 'exhausted');
      return;
    }
    const target = this.#port.target(member);
    if (this.#tries > 0) {
      this.#port.counters.retries++;
      target.counters.retries++;
      this.#dialler.onRetry();
    }
    const timeoutMs = dialTimeoutMs(this.#tries);
    const quietMs = this.#port.quietMs(this.#tries, timeoutMs);
    if (quietMs > 0) this.#quietTimer = clock.after(quietMs, () => this.#onQuiet());
    this.#attempt = this.#begin(target);
  }

  cancel(): void {
    this.#quietTimer?.cancel();
    this.#attempt?.leave();
    this.#attempt = undefined;
    this.#hedge?.leave();
    this.#hedge = undefined;
  }

  #begin(target: Target): Attempt {
    const timeoutMs = dialTimeoutMs(this.#tries++);
    return this.#attemptTo(target, { client: this.#client, timeoutMs, isSecond: false, search: newPortSearch() });
  }

  #attemptTo(target: Target, terms: Terms): Attempt {
    const goOn = (others: Terms): void => {
      const next = this.#attemptTo(target, others);
      if (attempt === this.#attempt) this.#attempt = next;
      else this.#hedge = next;
    };
    const attempt: Attempt = new Attempt(this.#port, target, terms, {
      onConnected: (socket, rest) => {
        this.#over(attempt);
        // The other one.
        this.cancel();
        this.#dialler.onConnected(socket, target, rest);
      },
      onReset: (rest) => {
        this.cancel();
        this.#dialler.onReset(target, rest);
      },
      onLost: () => goOn({ client: terms.client, timeoutMs: terms.timeoutMs, isSecond: true, search: newPortSearch() }),
      onSearching: () => goOn(terms),
      onFailed: (reason) => {
        this.#over(attempt);
        this.#dialler.onFailed(target.member.endpoint, reason);
        if (this.#attempt !== undefined || this.#hedge !== undefined) return;
        this.#quietTimer?.cancel();
        this.start();
      },
    });
    return attempt;
  }

  #over(attempt: Attempt): void {
    if (attempt === this.#attempt) this.#attempt = undefined;
    else this.#hedge = undefined;
  }

  #onQuiet(): void {
    const silent = this.#attempt?.target.member;
    if (silent === undefined || !this.#port.mayHedge()) return;
    const member = this.#pick.next();
    // Where nobody else is left, the rest of the time is the first one's.
    if (member === undefined || member === silent || this.#port.picker.isEjected(member)) return;
    const target = this.#port.target(member);
    this.#port.counters.hedges++;
    target.counters.hedges++;
    this.#hedge = this.#begin(target);
  }
}

interface Terms {
  readonly client: KeptClient | undefined;
  readonly timeoutMs: number;
  /** The first has lost the client's address. */
  readonly isSecond: boolean;
  /** Goes on in another attempt. */
  readonly search: PortSearch;
}

/** An attempt ends with one of the five calls, in a later turn than it began, unless it is left. */
interface Attempting {
  onConnected(socket: Socket, rest: readonly Buffer[]): void;
  onReset(rest: readonly Buffer[]): void;
  /** See {@link KeptDials.hasLost}. It is worth a second attempt. */
  onLost(): void;
  /** See {@link STILL_SEARCHING}. */
  onSearching(): void;
  onFailed(reason: DialFailure): void;
}

/** One attempt to connect to one endpoint. It takes the member, and gives it back unless the endpoint has answered. */
class Attempt {
  readonly target: Target;
  readonly #port: Port;
  readonly #client: KeptClient | undefined;
  #socket: Socket | undefined;
  /** It keeps the client's address and is not answered yet. */
  #isKept = false;
  #timer: Timer | undefined;

  constructor(port: Port, target: Target, { client, timeoutMs, isSecond, search }: Terms, owner: Attempting) {
    this.#port = port;
    this.#client = client;
    this.target = target;
    target.member.taken();
    const { clock } = port.setup;
    const { endpoint } = target.member;
    const socket = this.#connect(endpoint, search);
    this.#socket = socket;
    const rest = this.#keepRest(socket, endpoint);
    const beganMs = clock.now();
    const fail = (err: Error, reason?: DialFailure): void => {
      // The socket is destroyed first: a connection that is established late must not stay open.
      this.leave();
      owner.onFailed(port.dialFailed(target, err, reason, clock.now() - beganMs));
    };
    const timeOut = (err: Error): void => {
      if (client !== undefined) client.needsNewPort = true;
      fail(err, 'timeout');
    };
    const onError = (err: Error): void => {
      if (err === STILL_SEARCHING) {
        this.#timer?.cancel();
        this.#timer = clock.after(0, () => {
          this.leave();
          owner.onSearching();
        });
      } else if (WAS_ACCEPTED.has(errnoOf(err))) owner.onReset(rest);
      else fail(err);
    };
    socket.once('error', onError);
    socket.once('connect', () => {
      socket.off('error', onError);
      // If nobody listens at an address of this node, the kernel may give the connection that very port.
      if (socket.localPort === socket.remotePort && socket.localAddress === socket.remoteAddress) {
        // Without a TIME_WAIT, which would keep the endpoint's program from its port.
        socket.resetAndDestroy();
        fail(connectedToItself(endpoint));
        return;
      }
      if (this.#hasLostClient(socket, endpoint)) {
        if (client !== undefined) client.needsNewPort = true;
        if (isSecond) {
          fail(new Error(LOST_CLIENT), 'other');
        } else {
          this.leave();
          owner.onLost();
        }
        return;
      }
      // Both are the owner's from now on.
      this.#socket = undefined;
      this.#isKept = false;
      this.#timer?.cancel();
      port.answered(target);
      const tookMs = clock.now() - beganMs;
      for (const counters of [port.counters, target.counters]) {
        counters.connects++;
        counters.connectMs += tookMs;
      }
      owner.onConnected(socket, rest);
    });
    // One turn later: after a standstill of this process timers come first, and then the answers that came in time.
    this.#timer = clock.after(timeoutMs, () => {
      this.#timer = clock.after(0, () => timeOut(new Error(`no answer within ${timeoutMs} ms`)));
    });
  }

  /** Ends it before it was answered. The endpoint sees at most a connection without a byte. */
  leave(): void {
    if (this.#socket === undefined) return;
    this.#timer?.cancel();
    this.#socket.destroy();
    this.#socket = undefined;
    this.target.member.released();
  }

  #connect(endpoint: Endpoint, search: PortSearch): Socket {
    const { keeper, openSocket } = this.#port.setup;
    const client = this.#client;
    this.#isKept = client !== undefined && canSee(endpoint.address, client.address);
    if (client === undefined || !this.#isKept) return connectTo(endpoint, openSocket);
    return connectTo(endpoint, keeper && (() => keeper.openTcp(endpoint, client, search)));
  }

  #hasLostClient(socket: Socket, endpoint: Endpoint): boolean {
    const { keeper } = this.#port.setup;
    if (keeper === undefined || this.#client === undefined || !this.#isKept) return false;
    return keeper.hasLost(socket, endpoint, this.#client);
  }

  /** Node throws away unread bytes when a connection breaks, also while connecting. */
  #keepRest(socket: Socket, endpoint: Endpoint): readonly Buffer[] {
    const rest: Buffer[] = [];
    const destroy = socket._destroy.bind(socket);
    socket._destroy = (err, callback) => {
      if (this.#isKept && this.#socket === socket) this.#port.setup.keeper?.hangUp(socket, endpoint);
      if (err !== null) {
        const read: Buffer | null = socket.read();
        if (read !== null) rest.push(read);
        rest.push(...(this.#port.setup.kernel?.readRest(socket) ?? []));
      }
      destroy(err, callback);
    };
    return rest;
  }
}

function connectTo({ address, port }: Endpoint, openSocket: OpenSocket | undefined): Socket {
  const target = { host: address, port };
  if (openSocket === undefined) return connect({ ...target, ...TCP_OPTIONS });
  let fd: number;
  try {
    fd = openSocket(address, 'TCP');
  } catch (error) {
    return new Socket().destroy(error as Error);
  }
  return new Socket({ fd, ...TCP_OPTIONS }).connect(target);
}
