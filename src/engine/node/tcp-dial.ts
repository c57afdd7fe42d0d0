import { connect, Socket } from 'node:net';
import type { DialFailure } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { canSee } from '../../services/known-clients.ts';
import type { Timer } from '../../util/clock.ts';
import type { Target } from '../core/target.ts';
import {
  type Attempt,
  type AttemptTerms,
  type Dialler as CoreDialler,
  TcpDial as CoreTcpDial,
  type TcpDialSetup,
} from '../core/tcp-dial.ts';
import { errnoOf, LOST_CLIENT } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import { newPortSearch, STILL_SEARCHING } from '../port-walk.ts';
import { connectedToItself, type OpenSocket, type Port } from './port.ts';

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

/** The endpoint has accepted. The socket reads already, so listeners must be added in the call that brings it. */
export interface DialResult {
  /** Missing where the endpoint has reset the connection before anything could be done with it. */
  readonly socket: Socket | undefined;
  /** What was received and not read when the connection broke, or will hold it. */
  readonly rest: readonly Buffer[];
}

export type Dialler = CoreDialler<Target, DialResult>;

/** A dial of this engine. */
export class TcpDial extends CoreTcpDial<Target, DialResult, Dialler, TcpAttempt> {
  readonly port: Port;
  readonly client: KeptClient | undefined;

  /** `client`: if endpoints see its address. */
  constructor(port: Port, client: KeptClient | undefined, setup: TcpDialSetup<Target, Dialler>) {
    super(port.thread.nowMs, setup);
    this.port = port;
    this.client = client;
  }

  protected newAttempt(target: Target, terms: AttemptTerms): TcpAttempt {
    return new TcpAttempt(this, target, terms);
  }
}

/** An attempt of this engine. It ends in a later turn than it began. */
class TcpAttempt implements Attempt<Target> {
  readonly target: Target;
  readonly timeoutMs: number;
  readonly #dial: TcpDial;
  readonly #quietMs: number;
  readonly #isSecond: boolean;
  /** If it keeps the client's address. */
  readonly #search = newPortSearch();
  #beganMs = 0;
  #socket: Socket | undefined;
  /** It keeps the client's address and is not answered yet. */
  #isKept = false;
  #timer: Timer | undefined;
  #quietTimer: Timer | undefined;

  constructor(dial: TcpDial, target: Target, { timeoutMs, quietMs, isSecond = false }: AttemptTerms) {
    this.#dial = dial;
    this.target = target;
    this.timeoutMs = timeoutMs;
    this.#quietMs = quietMs;
    this.#isSecond = isSecond;
    target.taken();
  }

  get tookMs(): number {
    return this.#dial.port.setup.clock.now() - this.#beganMs;
  }

  /** Begins again, too, where it is still searching for a local port. */
  begin(): undefined {
    const { clock } = this.#dial.port.setup;
    this.#beganMs = clock.now();
    const { endpoint } = this.target;
    const socket = this.#connect(endpoint);
    this.#socket = socket;
    const rest = this.#keepRest(socket, endpoint);
    const onError = (err: Error): void => {
      if (err === STILL_SEARCHING) {
        this.#stopTimers();
        this.#timer = clock.after(0, () => this.begin());
      } else if (WAS_ACCEPTED.has(errnoOf(err))) this.#answered({ socket: undefined, rest });
      else this.#fail(err);
    };
    socket.once('error', onError);
    socket.once('connect', () => {
      socket.off('error', onError);
      this.#onConnect(socket, rest);
    });
    if (this.#quietMs > 0) this.#quietTimer = clock.after(this.#quietMs, () => this.#dial.onQuiet(this));
    // One turn later: after a standstill of this process timers come first, and then the answers that came in time.
    this.#timer = clock.after(this.timeoutMs, () => {
      this.#timer = clock.after(0, () => this.#timeOut());
    });
  }

  leave(): void {
    if (this.#socket === undefined) return;
    this.#stopTimers();
    this.#socket.destroy();
    this.#socket = undefined;
    this.target.released();
  }

  #onConnect(socket: Socket, rest: readonly Buffer[]): void {
    const { client } = this.#dial;
    const { endpoint } = this.target;
    // If nothing listens at an address of this node, the kernel may give the connection that very port.
    if (socket.localPort === socket.remotePort && socket.localAddress === socket.remoteAddress) {
      // Without a TIME_WAIT, which would keep the endpoint's program from its port.
      socket.resetAndDestroy();
      this.#fail(connectedToItself(endpoint));
    } else if (this.#hasLostClient(socket, endpoint)) {
      if (client !== undefined) client.needsNewPort = true;
      if (this.#isSecond) {
        this.#fail(new Error(LOST_CLIENT), 'other');
      } else {
        this.leave();
        this.#dial.onLost(this);
      }
    } else {
      this.#answered({ socket, rest });
    }
  }

  /** The socket is the dialler's from now on. */
  #answered(result: DialResult): void {
    this.#socket = undefined;
    this.#isKept = false;
    this.#stopTimers();
    this.#dial.onAnswered(this, result);
  }

  #timeOut(): void {
    const { client } = this.#dial;
    if (client !== undefined) client.needsNewPort = true;
    this.#fail(new Error(`no answer within ${this.timeoutMs} ms`), 'timeout');
  }

  #fail(err: Error, reason?: DialFailure): void {
    // The socket is destroyed first: a connection that is established late must not stay open.
    this.leave();
    this.#dial.onFailed(this, this.#dial.port.dialFailed(this.target, err, reason, this.tookMs));
  }

  #stopTimers(): void {
    this.#timer?.cancel();
    this.#quietTimer?.cancel();
  }

  #connect(endpoint: Endpoint): Socket {
    const { client, port } = this.#dial;
    const { keeper, openSocket } = port.setup;
    this.#isKept = client !== undefined && canSee(endpoint.address, client.address);
    if (client === undefined || !this.#isKept) return connectTo(endpoint, openSocket);
    return connectTo(endpoint, keeper && (() => keeper.openTcp(endpoint, client, this.#search)));
  }

  #hasLostClient(socket: Socket, endpoint: Endpoint): boolean {
    const { client, port } = this.#dial;
    const { keeper } = port.setup;
    if (keeper === undefined || client === undefined || !this.#isKept) return false;
    return keeper.hasLost(socket, endpoint, client);
  }

  /** Node throws away unread bytes when a connection breaks, also while connecting. */
  #keepRest(socket: Socket, endpoint: Endpoint): readonly Buffer[] {
    const rest: Buffer[] = [];
    const { keeper, kernel } = this.#dial.port.setup;
    const destroy = socket._destroy.bind(socket);
    socket._destroy = (err, callback) => {
      if (this.#isKept && this.#socket === socket) keeper?.hangUp(socket, endpoint);
      if (err !== null) {
        const read: Buffer | null = socket.read();
        if (read !== null) rest.push(read);
        rest.push(...(kernel?.readRest(socket) ?? []));
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
