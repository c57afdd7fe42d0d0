import { createSocket, type Socket } from 'node:dgram';
import { isIPv6 } from 'node:net';
import type { Ending, TryLog } from '../../model/connection-log.ts';
import type { OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint, NamedEndpoint } from '../../model/endpoint.ts';
import { wholeMsLeft } from '../../util/clock.ts';
import { Session } from '../core/session.ts';
import { add, COUNTER, type Target } from '../core/target.ts';
import { dialFailureOf, errnoOf } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import { connectedToItself, type Port } from './port.ts';
import { SilenceTimer } from './silence-timer.ts';
import { type Asked, UdpReplay } from './udp-replay.ts';

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

/** The listening socket at one address, and the flows that arrived there. */
export interface LocalSocket {
  readonly socket: Socket;
  readonly flows: Map<string, UdpFlow>;
  /** They pass on late answers. The next datagram of their client begins another flow. */
  readonly retired: Set<UdpFlow>;
}

/** The datagrams of one client address and port, with their own socket to one endpoint, so that replies find back. */
export class UdpFlow extends Session<Port> {
  readonly target: Target;
  hasRetired: boolean;
  readonly #client: Endpoint;
  readonly #asked: Asked | undefined;
  readonly #reply: (datagram: Buffer) => void;
  readonly #onRetire: () => void;
  readonly #onEnd: () => void;
  readonly #kept: KeptClient | undefined;
  /** Of the socket, if so. */
  #keptFd = -1;
  /** Without a datagram, its entry in connection tracking may end then. Infinity where there is none. */
  #keptUntilMs = Number.POSITIVE_INFINITY;
  readonly #socket: Socket;
  /** Datagrams in order, until the socket is connected. */
  #waiting: Uint8Array[] | undefined = [];
  #hasReplied = false;
  /** While nobody has answered. */
  #replay: UdpReplay | undefined;
  #receivedBytes = 0;
  #sentBytes = 0;
  readonly #silence: SilenceTimer;

  /** `onRetire` is called at most once, `onEnd` once. */
  constructor(setup: {
    readonly port: Port;
    readonly client: Endpoint;
    readonly target: Target;
    /** If the endpoint sees its address. */
    readonly kept?: KeptClient | undefined;
    readonly asked?: Asked;
    /** Which has begun it. */
    readonly replay?: UdpReplay;
    readonly reply: (datagram: Buffer) => void;
    /** Of endpoints that were asked before. */
    readonly tries?: TryLog | undefined;
    readonly onRetire: () => void;
    readonly onEnd: () => void;
  }) {
    const { port, client, target, asked, replay, reply, tries, onRetire, onEnd } = setup;
    super(port);
    this.target = target;
    this.hasRetired = replay?.hasRetired ?? false;
    this.#replay = replay;
    this.#asked = asked;
    this.#client = client;
    this.#reply = reply;
    this.#onRetire = onRetire;
    this.#onEnd = onEnd;
    const { clock } = port.setup;
    this.#kept = setup.kept;
    this.follows(tries);
    // A turn of the event loop reads all replies, but only some of a listener's datagrams.
    const received = () => port.counters[COUNTER.receivedBytes] as number;
    this.#silence = new SilenceTimer(clock, this.#firstReplyMs, () => this.cut('proxy-idle'), received);
    this.#socket = udpSocket(this.endpoint.address);
    this.begun();
    target.taken();
    port.joined(target);
  }

  get endpoint(): NamedEndpoint {
    return this.target.endpoint;
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
    const { openSocket, keeper } = this.port.setup;
    const kept = this.#kept;
    try {
      if (kept !== undefined && keeper !== undefined) {
        this.#keptFd = keeper.openUdp(this.endpoint, kept);
        this.#socket.bind({ fd: this.#keptFd });
      } else if (openSocket !== undefined) {
        this.#socket.bind({ fd: openSocket(address, 'UDP') });
      }
    } catch (error) {
      this.#fail(error as Error);
      return;
    }
    this.#socket.connect(port, address);
  }

  /**
   * The endpoint would see another address by now: after a standstill, datagrams may come before the end of the flow.
   */
  get isForgotten(): boolean {
    return this.#kept !== undefined && this.port.setup.clock.now() >= this.#keptUntilMs;
  }

  /** From the client to the endpoint. */
  send(datagram: Buffer): void {
    this.#silence.moved();
    this.#moved();
    this.#receivedBytes += datagram.length;
    this.port.count('receivedBytes', undefined, datagram.length);
    this.#keep(datagram);
    this.#give(datagram, this.port.thread.nowMs);
  }

  /** Sends what the client has sent before and another endpoint has not answered. */
  resend(datagram: Uint8Array): void {
    this.#give(datagram, undefined);
  }

  /** `sentMs`: when the client's next datagram came. */
  #give(datagram: Uint8Array, sentMs: number | undefined): void {
    add(this.target.counters, COUNTER.receivedBytes, datagram.length);
    if (this.#waiting === undefined) this.#transmit(datagram, sentMs);
    else if (this.#waiting.length < MAX_WAITING) this.#waiting.push(datagram);
    else this.port.count('limited');
  }

  describe(): OpenConnection | undefined {
    if (this.isOver) return undefined;
    return {
      client: this.#client,
      endpoint: this.endpoint,
      state: 'flow',
      expiresMs: wholeMsLeft(this.#silence.leftMs),
    };
  }

  cut(ending: Ending): void {
    if (this.isOver) return;
    this.#replay?.ended(this);
    this.#silence.cancel();
    this.finish(ending);
    if (this.#keptFd >= 0) this.port.setup.keeper?.endFlow(this.#keptFd, this.endpoint);
    this.#socket.close();
    this.#onEnd();
  }

  /** It only passes on late answers from now on. */
  retire(): void {
    if (this.hasRetired) return;
    this.hasRetired = true;
    this.#onRetire();
  }

  /** Its endpoint has gone. Another one is asked, where the Service wants that of silent ones. */
  leave(): void {
    const replay = this.port.udpReplayMs === undefined ? undefined : this.#replay;
    if (replay !== undefined) this.#replay = undefined;
    this.cut('proxy-drain');
    replay?.endedInVain(this);
  }

  protected client(): Endpoint {
    return this.#client;
  }

  protected bytes() {
    return { receivedBytes: this.#receivedBytes, sentBytes: this.#sentBytes };
  }

  #connected(): void {
    // The flow may have ended meanwhile, which closed the socket.
    if (this.isOver) return;
    const { address, port } = this.#socket.address();
    if (address === this.endpoint.address && port === this.endpoint.port) {
      this.#fail(connectedToItself(this.endpoint));
      return;
    }
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    for (const datagram of waiting) this.#transmit(datagram);
  }

  get #firstReplyMs(): number {
    const { udpIdleTimeoutMs, udpFirstReplyTimeoutMs } = this.port.setup.options;
    return Math.min(Math.max(udpIdleTimeoutMs, udpFirstReplyTimeoutMs), this.#longestMs);
  }

  /** After a reply. */
  get #idleMs(): number {
    return Math.min(this.port.setup.options.udpIdleTimeoutMs, this.#longestMs);
  }

  get #longestMs(): number {
    const { clock, keeper } = this.port.setup;
    if (this.#kept === undefined || keeper === undefined) return Number.POSITIVE_INFINITY;
    return keeper.longestSilenceMs(clock.now());
  }

  #moved(): void {
    if (this.#kept !== undefined) this.#keptUntilMs = this.port.setup.clock.now() + this.#longestMs;
  }

  #keep(datagram: Buffer): void {
    // After an answer only where questions can be asked twice: elsewhere, and in bulk, it would hold much memory.
    if (this.#replay === undefined && this.#asked !== undefined && this.port.udpReplayMs !== undefined) {
      this.#replay = new UdpReplay(this.#asked);
      this.#replay.follow(this);
      this.#silence.restart(this.#firstReplyMs);
      this.#hasReplied = false;
    }
    this.#replay?.keep(datagram);
  }

  #transmit(datagram: Uint8Array, sentMs?: number): void {
    if (this.isOver) return;
    if (!hasRoomToSend(this.#socket)) {
      this.port.count('limited');
      return;
    }
    this.#socket.send(datagram, (err) => {
      if (err !== null) this.#fail(err);
      else if (sentMs !== undefined) this.#replay?.wasSent(sentMs);
    });
  }

  #receive(datagram: Buffer): void {
    if (this.isOver) return;
    this.#sentBytes += datagram.length;
    this.port.count('sentBytes', this.target, datagram.length);
    if (this.#hasReplied) this.#silence.moved();
    else this.#firstReply();
    this.#moved();
    this.#hasReplied = true;
    if (this.#replay?.answered(1)) this.#replay = undefined;
    this.#reply(datagram);
  }

  #firstReply(): void {
    this.#silence.restart(this.#idleMs);
    this.port.answered(this.target);
  }

  #fail(err: Error): void {
    if (this.isOver) return;
    const isConnected = this.#waiting === undefined;
    if (isConnected && HARMS_ONE_DATAGRAM.has(errnoOf(err))) return;
    const replay = this.#replay;
    this.#replay = undefined;
    this.tries.fail(this.target.name, dialFailureOf(errnoOf(err)));
    this.cut('backend-error');
    const reason = this.port.dialFailed(this.target, err);
    if (reason === 'other') {
      // The failure was this node's.
      replay?.ended(this);
      return;
    }
    // The client's next datagram must not be pinned to it.
    this.port.picker.forget(this.#client.address, this.target);
    if (replay?.endedInVain(this) !== true && !this.hasRetired && this.#asked !== undefined) {
      this.#asked.asking.refuse(this.#asked);
    }
  }
}
