import { connect, Socket } from 'node:net';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import type { Target } from '../core/target.ts';
import { TcpAttempt as CoreTcpAttempt, type TcpDial } from '../core/tcp-dial.ts';
import { dialFailureOf, errnoOf, errorText } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import { newPortSearch, STILL_SEARCHING } from '../port-walk.ts';
import { keepRest, type Rest } from './node-side.ts';
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

/** An attempt of this engine. It ends in a later turn than it began. */
export class TcpAttempt extends CoreTcpAttempt<Target> {
  socket: Socket | undefined;
  rest: Rest = [];
  readonly #connection: { readonly port: Port };
  /** If it keeps the client's address. */
  #search = newPortSearch();

  constructor(
    connection: { readonly port: Port },
    dial: TcpDial<Target>,
    target: Target,
    timeoutMs: number,
    quietMs: number,
  ) {
    super(dial, target, timeoutMs, quietMs);
    this.#connection = connection;
  }

  begin(): void {
    this.begun();
    const { endpoint } = this.target;
    const socket = this.#connect(endpoint);
    this.socket = socket;
    const { keeper } = this.#connection.port.setup;
    this.rest = keepRest(this.#connection, socket, () => {
      if (this.isKept && !this.isOver && this.socket === socket) keeper?.hangUp(socket, endpoint);
    });
    const onError = (err: Error): void => {
      if (err === STILL_SEARCHING) this.#goOnSearching();
      else if (WAS_ACCEPTED.has(errnoOf(err))) this.answered(true);
      else this.#fail(err);
    };
    socket.once('error', onError);
    socket.once('connect', () => {
      socket.off('error', onError);
      this.#onConnect(socket);
    });
    this.awaitAnswer();
  }

  protected hangUp(): void {
    const { socket, target } = this;
    if (socket === undefined || socket.destroyed) return;
    this.socket = undefined;
    this.#search = newPortSearch();
    if (this.isKept) this.#connection.port.setup.keeper?.hangUp(socket, target.endpoint);
    socket.destroy();
  }

  protected hasLostClient(client: KeptClient): boolean {
    const { keeper } = this.#connection.port.setup;
    return keeper?.hasLost(this.socket as Socket, this.target.endpoint, client) ?? false;
  }

  #onConnect(socket: Socket): void {
    // If nothing listens at an address of this node, the kernel may give the connection that very port.
    if (socket.localPort === socket.remotePort && socket.localAddress === socket.remoteAddress) {
      // Without a TIME_WAIT, which would keep the endpoint's program from its port.
      socket.resetAndDestroy();
      this.#fail(connectedToItself());
    } else {
      this.onHandshake();
    }
  }

  /** In a later turn. */
  #goOnSearching(): void {
    this.stopWaiting();
    this.#connection.port.thread.after(0, () => {
      if (!this.isOver) this.begin();
    });
  }

  #fail(err: Error): void {
    this.fail(dialFailureOf(errnoOf(err)), errorText(err));
  }

  #connect(endpoint: NamedEndpoint): Socket {
    const { keeper, openSocket } = this.#connection.port.setup;
    const client = this.seenClient;
    this.isKept = client !== undefined;
    if (client === undefined) return connectTo(endpoint, openSocket);
    return connectTo(endpoint, keeper && (() => keeper.openTcp(endpoint, client, this.#search)));
  }
}

function connectTo({ address, port }: NamedEndpoint, openSocket: OpenSocket | undefined): Socket {
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
