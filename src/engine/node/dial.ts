import { connect, Socket } from 'node:net';
import type { DialFailure } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { Pick } from '../../services/picker.ts';
import { dialTimeoutMs, LONGEST_DIALLING_MS } from '../../services/retry-policy.ts';
import type { Timer } from '../../util/clock.ts';
import { errnoOf } from '../listen-error.ts';
import { connectedToItself, dialFailureOf, reportDialFailure } from './dial-failure.ts';
import type { OpenSocket, PortContext } from './port-context.ts';
import { TCP_OPTIONS } from './tcp-options.ts';

export interface DialOptions {
  readonly port: PortContext;
  readonly pick: Pick;
  /**
   * The socket has begun to read, so listeners must be added in this call. `rest` will hold what was received and not
   * read when the connection broke.
   */
  readonly onConnected: (backend: Socket, endpoint: Endpoint, rest: readonly Buffer[]) => void;
  /** The endpoint accepted, sent `rest` and reset the connection before anything could be done with it. */
  readonly onReset: (endpoint: Endpoint, rest: readonly Buffer[]) => void;
  readonly onGivenUp: (reason: 'no-endpoints' | 'exhausted') => void;
}

/**
 * A reset that comes before the handshake is over is a refusal (ECONNREFUSED). These are of connections that the endpoint
 * had accepted: no reason to try another, and it depends on timing alone whether they show here or as a read error.
 */
const WAS_ACCEPTED: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);

/** Tries a pick's candidates one after another until one answers. */
export class Dial {
  readonly #port: PortContext;
  readonly #pick: Pick;
  readonly #onConnected: DialOptions['onConnected'];
  readonly #onReset: DialOptions['onReset'];
  readonly #onGivenUp: DialOptions['onGivenUp'];
  readonly #startedMs: number;
  #attempts = 0;
  #endpoint: Endpoint | undefined;
  #socket: Socket | undefined;
  #timer: Timer | undefined;

  constructor(options: DialOptions) {
    this.#port = options.port;
    this.#pick = options.pick;
    this.#onConnected = options.onConnected;
    this.#onReset = options.onReset;
    this.#onGivenUp = options.onGivenUp;
    this.#startedMs = options.port.clock.now();
  }

  /** The one that is being tried. */
  get endpoint(): Endpoint | undefined {
    return this.#endpoint;
  }

  /** May give up before it returns. */
  start(): void {
    const isLate = this.#attempts > 0 && this.#port.clock.now() - this.#startedMs >= LONGEST_DIALLING_MS;
    const endpoint = isLate ? undefined : this.#pick.next();
    this.#endpoint = endpoint;
    if (endpoint === undefined) {
      this.#onGivenUp(this.#attempts === 0 ? 'no-endpoints' : 'exhausted');
      return;
    }
    const attempt = this.#attempts++;
    if (attempt > 0) {
      this.#port.counters.retries++;
      this.#port.endpoints.of(endpoint).retries++;
    }
    this.#dial(endpoint, dialTimeoutMs(attempt));
  }

  /** No callback comes after this. */
  cancel(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#socket?.destroy();
    this.#socket = undefined;
  }

  #dial(endpoint: Endpoint, timeoutMs: number): void {
    const socket = connectTo(endpoint, this.#port.openSocket);
    this.#socket = socket;
    const rest = this.#keepRest(socket);
    const { clock, counters, endpoints } = this.#port;
    const beganMs = clock.now();
    const fail = (reason: DialFailure, err: Error): void => {
      // Destroying the socket first: a connection that comes up late must not stay behind.
      this.cancel();
      reportDialFailure(this.#port, endpoint, reason, err);
      this.start();
    };
    const onError = (err: Error): void => {
      if (WAS_ACCEPTED.has(errnoOf(err))) {
        this.cancel();
        this.#onReset(endpoint, rest);
      } else {
        fail(dialFailureOf(err), err);
      }
    };
    socket.once('error', onError);
    socket.once('connect', () => {
      socket.off('error', onError);
      // Where nobody listens at an address of this node, the kernel may give the connection that very port.
      if (socket.localPort === socket.remotePort && socket.localAddress === socket.remoteAddress) {
        // Without a TIME_WAIT, which would keep the endpoint's program from its port.
        socket.resetAndDestroy();
        onError(connectedToItself(endpoint));
        return;
      }
      this.#socket = undefined;
      this.cancel();
      const tookMs = clock.now() - beganMs;
      for (const each of [counters, endpoints.of(endpoint)]) {
        each.connects++;
        each.connectMs += tookMs;
      }
      this.#onConnected(socket, endpoint, rest);
    });
    const timedOut = () => fail('timeout', new Error(`no answer within ${timeoutMs} ms`));
    // One turn later: after a standstill of this process timers come first, and an answer that is there already next.
    this.#timer = clock.after(timeoutMs, () => {
      this.#timer = clock.after(0, timedOut);
    });
  }

  /** Node throws away what is still to be read when a connection breaks, be it while connecting. */
  #keepRest(socket: Socket): readonly Buffer[] {
    const rest: Buffer[] = [];
    const destroy = socket._destroy.bind(socket);
    socket._destroy = (err, callback) => {
      if (err !== null) {
        const read: Buffer | null = socket.read();
        if (read !== null) rest.push(read);
        rest.push(...(this.#port.kernel?.readRest(socket) ?? []));
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
