import { createSocket, type Socket } from 'node:dgram';
import { isIPv6 } from 'node:net';
import type { TryLog } from '../../model/connection-log.ts';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import { add, COUNTER, type Target } from '../core/target.ts';
import { UdpFlow as CoreUdpFlow } from '../core/udp-flow.ts';
import { dialFailureOf, errnoOf, errorText } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import { connectedToItself, type Port } from './port.ts';
import { SilenceTimer } from './silence-timer.ts';
import type { FlowClient, Replay, UdpFlows } from './udp-flows.ts';

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

function hasRoomToSend(socket: Socket): boolean {
  return socket.getSendQueueSize() < MAX_QUEUED_BYTES;
}

/** The datagrams of one client address and port, with their own socket to one endpoint, so that replies find back. */
export class UdpFlow extends CoreUdpFlow<Port, FlowClient, Replay> {
  readonly target: Target;
  protected readonly flows: UdpFlows;
  readonly #kept: KeptClient | undefined;
  /** Of the socket, if so. */
  #keptFd = -1;
  readonly #socket: Socket;
  /** Datagrams in order, until the socket is connected. */
  #waiting: Uint8Array[] | undefined = [];
  readonly #silence: SilenceTimer;

  constructor(setup: {
    readonly flows: UdpFlows;
    readonly from: FlowClient;
    readonly target: Target;
    /** If the endpoint sees its address. */
    readonly kept?: KeptClient | undefined;
    /** Which has begun it. */
    readonly replay?: Replay;
    /** Of endpoints that were asked before. */
    readonly tries?: TryLog | undefined;
  }) {
    const { flows, from, target, replay, tries } = setup;
    const { port } = flows;
    super(port, { from, replay, hasRetired: replay?.hasRetired });
    this.target = target;
    this.flows = flows;
    const { clock } = port.setup;
    this.#kept = setup.kept;
    this.follows(tries);
    // A turn of the event loop reads all replies, but only some of a listener's datagrams.
    const received = () => port.counters[COUNTER.receivedBytes] as number;
    this.#silence = new SilenceTimer(clock, this.#silenceMs, () => this.cut('proxy-idle'), received);
    this.#socket = udpSocket(this.endpoint.address);
    flows.add(this, true);
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

  /** From the client to the endpoint. */
  send(datagram: Buffer): void {
    this.#silence.moved();
    this.#moved();
    this.receivedBytes += datagram.length;
    this.port.count('receivedBytes', undefined, datagram.length);
    const replay = this.flows.replayOfNext(this);
    if (replay?.hasRoomFor(datagram.length)) replay.keep(datagram);
    this.#give(datagram, this.port.thread.nowMs);
  }

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

  protected get leftMs(): number {
    return this.#silence.leftMs;
  }

  protected restartSilence(): void {
    this.#silence.restart(this.#silenceMs);
  }

  protected release(): void {
    this.#silence.cancel();
    if (this.#keptFd >= 0) this.port.setup.keeper?.endFlow(this.#keptFd, this.endpoint);
    this.#socket.close();
  }

  #connected(): void {
    // The flow may have ended meanwhile, which closed the socket.
    if (this.isOver) return;
    const { address, port } = this.#socket.address();
    if (address === this.endpoint.address && port === this.endpoint.port) {
      this.#fail(connectedToItself());
      return;
    }
    const waiting = this.#waiting ?? [];
    this.#waiting = undefined;
    for (const datagram of waiting) this.#transmit(datagram);
  }

  get #silenceMs(): number {
    return this.flows.silenceMs(this.hasReplied, this.#longestMs);
  }

  get #longestMs(): number {
    const { clock, keeper } = this.port.setup;
    if (this.#kept === undefined || keeper === undefined) return Number.POSITIVE_INFINITY;
    return keeper.longestSilenceMs(clock.now());
  }

  #moved(): void {
    if (this.#kept !== undefined) this.keptUntilMs = this.port.setup.clock.now() + this.#longestMs;
  }

  #transmit(datagram: Uint8Array, sentMs?: number): void {
    if (this.isOver) return;
    if (!hasRoomToSend(this.#socket)) {
      this.port.count('limited');
      return;
    }
    this.#socket.send(datagram, (err) => {
      if (err !== null) this.#fail(err);
      else if (sentMs !== undefined) this.replay?.wasSent(sentMs);
    });
  }

  #receive(datagram: Buffer): void {
    if (this.isOver) return;
    const hadReplied = this.hasReplied;
    this.answered(1, datagram.length);
    if (hadReplied) this.#silence.moved();
    else this.restartSilence();
    this.#moved();
    const { local, endpoint } = this.from;
    // A reply that cannot be sent is dropped. Its error does not concern other flows.
    if (hasRoomToSend(local)) local.send(datagram, endpoint.port, endpoint.address, () => {});
    else this.port.count('limited');
  }

  #fail(err: Error): void {
    if (this.isOver) return;
    const isConnected = this.#waiting === undefined;
    if (isConnected && HARMS_ONE_DATAGRAM.has(errnoOf(err))) return;
    this.failed(dialFailureOf(errnoOf(err)), errorText(err));
  }
}
