import type { Socket } from 'node:dgram';
import type { Counters, OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { type Timer, wholeMsLeft } from '../../util/clock.ts';
import { errnoOf } from '../listen-error.ts';
import { connectedToItself, dialFailureOf, reportDialFailure } from './dial-failure.ts';
import type { PortContext } from './port-context.ts';
import { hasRoomToSend, udpSocket } from './udp-socket.ts';

/** How many datagrams may wait for the backend socket, which takes a turn of the event loop or two to connect. */
const MAX_WAITING = 64;

/**
 * How many more turns of the event loop a flow may last because datagrams of its Service port are still being read. A
 * standstill leaves behind what the kernel's queues hold, which is fewer; a flood never ends.
 */
const MAX_TURNS_BEHIND = 400;

/** Too big for the path, no buffer, held back by a local rule: the flow and its endpoint are sound. */
const HARMS_ONE_DATAGRAM: ReadonlySet<string> = new Set(['EMSGSIZE', 'ENOBUFS', 'ENOMEM', 'EAGAIN', 'EPERM']);

export interface UdpFlowOptions {
  readonly port: PortContext;
  readonly client: Endpoint;
  readonly endpoint: Endpoint;
  readonly reply: (datagram: Buffer) => void;
  /** Called once, whatever ended the flow. */
  readonly onEnd: () => void;
}

/** One client address and port, as one endpoint sees it: a connected socket of its own, so that replies find back. */
export class UdpFlow {
  readonly endpoint: Endpoint;
  hasEnded = false;
  readonly #port: PortContext;
  readonly #client: Endpoint;
  /** The endpoint's. */
  readonly #share: Counters;
  readonly #reply: UdpFlowOptions['reply'];
  readonly #onEnd: UdpFlowOptions['onEnd'];
  readonly #socket: Socket;
  /** Datagrams in order, until the socket is connected. */
  #waiting: Buffer[] | undefined = [];
  #hasReplied = false;
  #lastMovedMs: number;
  #timer: Timer;

  constructor(options: UdpFlowOptions) {
    this.endpoint = options.endpoint;
    this.#port = options.port;
    this.#client = options.client;
    this.#share = options.port.endpoints.of(options.endpoint);
    this.#share.connections++;
    this.#share.active++;
    this.#reply = options.reply;
    this.#onEnd = options.onEnd;
    this.#lastMovedMs = this.#port.clock.now();
    this.#timer = this.#arm(this.#timeoutMs());
    this.#socket = udpSocket(this.endpoint.address);
  }

  /** May end the flow before it returns. */
  start(): void {
    // Of a connected socket: an ICMP refusal, which the kernel keeps for the next receive or send. Of one that is not
    // connected yet: no descriptor or local port left, or no route.
    this.#socket.on('error', (err) => this.#fail(err));
    this.#socket.on('message', (datagram, { address, port }) => {
      // Node binds the socket before it connects it, and in between anybody could have sent to its port.
      if (port === this.endpoint.port && address === this.endpoint.address) this.#receive(datagram);
    });
    this.#socket.on('connect', () => this.#connected());
    const { openSocket } = this.#port;
    try {
      if (openSocket !== undefined) this.#socket.bind({ fd: openSocket(this.endpoint.address, 'UDP') });
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    this.#socket.connect(this.endpoint.port, this.endpoint.address);
  }

  /** From the client to the endpoint. */
  send(datagram: Buffer): void {
    this.#lastMovedMs = this.#port.clock.now();
    this.#port.counters.receivedBytes += datagram.length;
    this.#share.receivedBytes += datagram.length;
    if (this.#waiting === undefined) this.#transmit(datagram);
    else if (this.#waiting.length < MAX_WAITING) this.#waiting.push(datagram);
    else this.#port.counters.limited++;
  }

  describe(): OpenConnection {
    return { client: this.#client, endpoint: this.endpoint, state: 'flow', expiresMs: wholeMsLeft(this.#leftMs()) };
  }

  end(): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.#timer.cancel();
    this.#share.active--;
    this.#socket.close();
    this.#onEnd();
  }

  #connected(): void {
    // A flow that has ended meanwhile has closed it.
    if (this.hasEnded) return;
    const { address, port } = this.#socket.address();
    if (address === this.endpoint.address && port === this.endpoint.port) this.#fail(connectedToItself(this.endpoint));
    else this.#flush();
  }

  #flush(): void {
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    for (const datagram of waiting) this.#transmit(datagram);
  }

  #transmit(datagram: Buffer): void {
    if (this.hasEnded) return;
    if (!hasRoomToSend(this.#socket)) {
      this.#port.counters.limited++;
      return;
    }
    this.#socket.send(datagram, (err) => {
      if (err !== null) this.#fail(err);
    });
  }

  #receive(datagram: Buffer): void {
    if (this.hasEnded) return;
    this.#lastMovedMs = this.#port.clock.now();
    this.#port.counters.sentBytes += datagram.length;
    this.#share.sentBytes += datagram.length;
    if (!this.#hasReplied) {
      this.#hasReplied = true;
      this.#timer.cancel();
      this.#timer = this.#arm(this.#timeoutMs());
    }
    this.#reply(datagram);
  }

  #fail(err: Error): void {
    if (this.hasEnded) return;
    const isConnected = this.#waiting === undefined;
    if (isConnected && HARMS_ONE_DATAGRAM.has(errnoOf(err))) return;
    const reason = dialFailureOf(err);
    // The endpoint's failure, not this node's: the client's next datagram must not be pinned to it.
    if (reason !== 'other') this.#port.picker.forget(this.#client.address, this.endpoint);
    this.end();
    reportDialFailure(this.#port, this.endpoint, reason, err);
  }

  #timeoutMs(): number {
    const { udpIdleTimeoutMs, udpFirstReplyTimeoutMs } = this.#port.options;
    return this.#hasReplied ? udpIdleTimeoutMs : Math.max(udpIdleTimeoutMs, udpFirstReplyTimeoutMs);
  }

  #leftMs(): number {
    return this.#lastMovedMs + this.#timeoutMs() - this.#port.clock.now();
  }

  /** The timer finds out by itself how much silence is left to wait for; a datagram costs only a clock reading. */
  #arm(delayMs: number): Timer {
    return this.#port.clock.after(delayMs, () => {
      const leftMs = this.#leftMs();
      this.#timer = leftMs > 0 ? this.#arm(Math.ceil(leftMs)) : this.#endSoon(MAX_TURNS_BEHIND);
    });
  }

  /**
   * After a standstill of this process timers come first, and datagrams that came in time later: a turn of the event loop
   * reads all replies, but only some of what has come for a listener. So the flow ends after a turn that brought none.
   */
  #endSoon(turns: number): Timer {
    const { clock, counters } = this.#port;
    const before = counters.receivedBytes;
    return clock.after(0, () => {
      const leftMs = this.#leftMs();
      if (leftMs > 0) this.#timer = this.#arm(Math.ceil(leftMs));
      else if (turns > 0 && counters.receivedBytes !== before) this.#timer = this.#endSoon(turns - 1);
      else this.end();
    });
  }
}
