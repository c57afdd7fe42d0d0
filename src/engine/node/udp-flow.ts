import { createSocket, type Socket } from 'node:dgram';
import { isIPv6 } from 'node:net';
import type { OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { wholeMsLeft } from '../../util/clock.ts';
import { errnoOf } from '../errors.ts';
import { connectedToItself, type Port, type Session, type Target } from './port.ts';
import { SilenceTimer } from './silence-timer.ts';

/** How many datagrams may wait for the flow's socket, which takes a turn of the event loop or two to connect. */
const MAX_WAITING = 64;

/** Too big for the path, no buffer, or dropped by a local rule: the flow and its endpoint are fine. */
const HARMS_ONE_DATAGRAM: ReadonlySet<string> = new Set(['EMSGSIZE', 'ENOBUFS', 'ENOMEM', 'EAGAIN', 'EPERM']);

/** Room for bursts. The kernel limits it to `net.core.rmem_max` and `wmem_max`, and reserves nothing. */
const BUFFER_BYTES = 4 << 20;

/** How much may wait in the process when the kernel takes no more. Further datagrams are dropped, as in the kernel. */
const MAX_QUEUED_BYTES = 1 << 20;

/**
 * An unbound socket of the address's family. Without SO_REUSEADDR: with it two Services could be given one port.
 * Addresses are always numeric here, and the default look-up would delay every datagram by a turn through `dns`.
 */
export function udpSocket(address: string): Socket {
  const family = isIPv6(address) ? 6 : 4;
  return createSocket({
    type: `udp${family}`,
    ipv6Only: family === 6,
    recvBufferSize: BUFFER_BYTES,
    sendBufferSize: BUFFER_BYTES,
    lookup: (numeric, _options, callback) => callback(null, numeric, family),
  });
}

export function hasRoomToSend(socket: Socket): boolean {
  return socket.getSendQueueSize() < MAX_QUEUED_BYTES;
}

/** The datagrams of one client address and port, with their own socket to one endpoint, so that replies find back. */
export class UdpFlow implements Session {
  readonly target: Target;
  hasEnded = false;
  readonly #port: Port;
  readonly #client: Endpoint;
  readonly #reply: (datagram: Buffer) => void;
  readonly #onEnd: () => void;
  readonly #socket: Socket;
  /** Datagrams in order, until the socket is connected. */
  #waiting: Buffer[] | undefined = [];
  #hasReplied = false;
  readonly #silence: SilenceTimer;

  /** `onEnd` is called once. */
  constructor(setup: {
    readonly port: Port;
    readonly client: Endpoint;
    readonly target: Target;
    readonly reply: (datagram: Buffer) => void;
    readonly onEnd: () => void;
  }) {
    const { port, client, target, reply, onEnd } = setup;
    this.target = target;
    this.#port = port;
    this.#client = client;
    this.#reply = reply;
    this.#onEnd = onEnd;
    const { clock, options } = port.setup;
    const firstMs = Math.max(options.udpIdleTimeoutMs, options.udpFirstReplyTimeoutMs);
    // A turn of the event loop reads all replies, but only some of a listener's datagrams.
    const received = () => port.counters.receivedBytes;
    this.#silence = new SilenceTimer(clock, firstMs, () => this.cut(), received);
    this.#socket = udpSocket(this.endpoint.address);
    port.begin(this);
    target.member.taken();
    port.joined(target);
  }

  get endpoint(): Endpoint {
    return this.target.member.endpoint;
  }

  /** May end the flow before it returns. */
  start(): void {
    const { address, port } = this.endpoint;
    // Of a connected socket: an ICMP refusal, which the kernel keeps for the next receive or send. Of one that is not
    // connected yet: no descriptor or local port left, or no route.
    this.#socket.on('error', (err) => this.#fail(err));
    this.#socket.on('message', (datagram, from) => {
      // Node binds the socket before it connects it, and in between anybody could have sent to its port.
      if (from.port === port && from.address === address) this.#receive(datagram);
    });
    this.#socket.on('connect', () => this.#connected());
    const { openSocket } = this.#port.setup;
    try {
      if (openSocket !== undefined) this.#socket.bind({ fd: openSocket(address, 'UDP') });
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    this.#socket.connect(port, address);
  }

  /** From the client to the endpoint. */
  send(datagram: Buffer): void {
    this.#silence.moved();
    this.#port.counters.receivedBytes += datagram.length;
    this.target.counters.receivedBytes += datagram.length;
    if (this.#waiting === undefined) this.#transmit(datagram);
    else if (this.#waiting.length < MAX_WAITING) this.#waiting.push(datagram);
    else this.#port.counters.limited++;
  }

  describe(): OpenConnection | undefined {
    if (this.hasEnded) return undefined;
    return {
      client: this.#client,
      endpoint: this.endpoint,
      state: 'flow',
      expiresMs: wholeMsLeft(this.#silence.leftMs),
    };
  }

  cut(): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.#silence.cancel();
    this.#port.ended(this, this.target);
    this.#socket.close();
    this.#onEnd();
  }

  #connected(): void {
    // The flow may have ended meanwhile, which closed the socket.
    if (this.hasEnded) return;
    const { address, port } = this.#socket.address();
    if (address === this.endpoint.address && port === this.endpoint.port) {
      this.#fail(connectedToItself(this.endpoint));
      return;
    }
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
    this.#port.counters.sentBytes += datagram.length;
    this.target.counters.sentBytes += datagram.length;
    if (this.#hasReplied) this.#silence.moved();
    else this.#silence.restart(this.#port.setup.options.udpIdleTimeoutMs);
    this.#hasReplied = true;
    this.#reply(datagram);
  }

  #fail(err: Error): void {
    if (this.hasEnded) return;
    const isConnected = this.#waiting === undefined;
    if (isConnected && HARMS_ONE_DATAGRAM.has(errnoOf(err))) return;
    this.cut();
    const reason = this.#port.dialFailed(this.target, err);
    // If it was the endpoint's failure, and not this node's, the client's next datagram must not be pinned to it.
    if (reason !== 'other') this.#port.picker.forget(this.#client.address, this.target.member);
  }
}
