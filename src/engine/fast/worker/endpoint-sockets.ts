import type { PortRange } from '../../../model/address.ts';
import type { DataPlaneOptions } from '../../../model/data-plane.ts';
import { congestionOption } from '../../../sys/congestion-control.ts';
import { Memory } from '../../../sys/memory.ts';
import {
  disconnect,
  getsockname,
  IPPROTO_TCP,
  markOption,
  recv,
  resetOnClose,
  SO_KEEPALIVE,
  SO_OOBINLINE,
  SOCKET_ADDRESS_BYTES,
  SOL_SOCKET,
  type SocketOption,
  setOption,
  shutdownWrite,
  TCP_KEEPIDLE,
  TCP_KEEPINTVL,
  TCP_NODELAY,
  unacknowledgedBytes,
} from '../../../sys/socket.ts';
import { EAGAIN } from '../../../sys/sys-error.ts';
import type { EventLoop } from './event-loop.ts';
import type { ParkedSockets, SocketKind } from './parked-sockets.ts';
import type { Target } from './target.ts';

/**
 * For both sides of a connection; accepted sockets inherit them from their listener. Go's `net` package, and so
 * upstream, sets no delay and a keepalive every 15 s by default.
 */
export const TCP_OPTIONS: readonly SocketOption[] = [
  { level: IPPROTO_TCP, name: TCP_NODELAY, value: 1 },
  { level: SOL_SOCKET, name: SO_KEEPALIVE, value: 1 },
  { level: IPPROTO_TCP, name: TCP_KEEPIDLE, value: 15 },
  { level: IPPROTO_TCP, name: TCP_KEEPINTVL, value: 15 },
];

/** An urgent byte stays in its place in the stream. */
export const URGENT_IN_LINE: SocketOption = { level: SOL_SOCKET, name: SO_OOBINLINE, value: 1 };

/** What all sockets towards endpoints have in common, TCP and UDP. */
export class EndpointSockets {
  readonly tcpOptions: readonly SocketOption[];
  readonly parked: ParkedSockets;
  readonly #loop: EventLoop;
  readonly #mark: readonly SocketOption[];
  /** From which the kernel gives a connection its local port. */
  readonly #localPorts: PortRange;
  readonly #name = new Memory(SOCKET_ADDRESS_BYTES);

  constructor(
    loop: EventLoop,
    parked: ParkedSockets,
    { connectionMark: mark, congestionControl: name }: Pick<DataPlaneOptions, 'connectionMark' | 'congestionControl'>,
    localPorts: PortRange,
  ) {
    this.tcpOptions = name === undefined ? TCP_OPTIONS : [...TCP_OPTIONS, congestionOption(name)];
    this.#loop = loop;
    this.parked = parked;
    this.#mark = mark === undefined ? [] : [markOption(mark)];
    this.#localPorts = localPorts;
  }

  /** Before `fd` is connected. */
  prepare(fd: number, options: readonly SocketOption[]): void {
    for (const option of options) setOption(fd, option);
    for (const option of this.#mark) setOption(fd, option);
  }

  /** A UDP socket of an earlier flow, prepared and watched; -1 if there is none of this kind. */
  takeUdp(kind: SocketKind): number {
    // What its endpoint has sent late must not reach the next client. Nothing more comes: it has no port.
    return this.parked.take(kind, (fd) => recv(fd, this.#name, 0, 1) === -EAGAIN);
  }

  /** In place of closing it. Without a kind it is closed: one that was bound to a port would keep that. */
  parkUdp(fd: number, kind: SocketKind | undefined): void {
    const isParked = kind !== undefined && disconnect(fd) === 0 && this.parked.park(fd, kind);
    if (!isParked) this.#loop.close(fd);
  }

  /** A TCP socket that had another connection before, prepared and watched; -1 if there is none of this kind. */
  takeTcp(kind: SocketKind): number {
    // The endpoint has all that was sent, and its end. Disconnecting earlier would lose that.
    return this.parked.take(kind, (fd) => unacknowledgedBytes(fd) === 0 && disconnect(fd) === 0);
  }

  /**
   * In place of closing a connection whose endpoint has ended its direction. `isShut`: ours has been ended, too.
   * Without a kind it is closed.
   */
  parkTcp(fd: number, kind: SocketKind | undefined, isShut: boolean): void {
    const isParked = kind !== undefined && (isShut || shutdownWrite(fd) === 0) && this.parked.park(fd, kind);
    if (!isParked) this.#loop.close(fd);
  }

  /**
   * Whether `fd` is connected to itself. That happens where nobody listens at an address of this node and the kernel
   * gives the connection that very port; the client would get its own bytes back (Go's `net` package has the same
   * check). Such a socket leaves no TIME_WAIT, which would keep the endpoint's program from its port. Most endpoints
   * have ports outside the kernel's range, and cost nothing.
   */
  isToItself(fd: number, { endpoint: { port }, address }: Target): boolean {
    if (port < this.#localPorts.first || port > this.#localPorts.last) return false;
    if (getsockname(fd, this.#name) < 0 || !address.bytes.equals(this.#name.bytes.subarray(0, address.length))) {
      return false;
    }
    resetOnClose(fd);
    return true;
  }
}
