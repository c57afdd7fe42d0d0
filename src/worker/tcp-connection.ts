import type { Endpoint } from '../model/endpoint.ts';
import type { Pick } from '../picker/picker.ts';
import { dialTimeoutMs } from '../picker/retry-policy.ts';
import { EPOLLERR, EPOLLHUP, EPOLLOUT } from '../sys/epoll.ts';
import {
  connect,
  IPPROTO_TCP,
  SO_KEEPALIVE,
  SOCK_STREAM,
  SOL_SOCKET,
  type SocketOption,
  setOption,
  shutdownWrite,
  socket,
  TCP_KEEPIDLE,
  TCP_KEEPINTVL,
  TCP_NODELAY,
  takeError,
  unacknowledgedBytes,
} from '../sys/socket.ts';
import { EINPROGRESS, isExhaustion } from '../sys/sys-error.ts';
import { Deadline } from './deadlines.ts';
import type { Target } from './endpoint-table.ts';
import type { PortState } from './port-state.ts';
import { SIDE_EVENTS, TcpSide } from './tcp-side.ts';

/**
 * For both sides; a listener hands them on to what it accepts. No delay, and keepalive every 15 s, are what Go's `net`
 * package sets by default, and so what upstream has.
 */
export const TCP_OPTIONS: readonly SocketOption[] = [
  { level: IPPROTO_TCP, name: TCP_NODELAY, value: 1 },
  { level: SOL_SOCKET, name: SO_KEEPALIVE, value: 1 },
  { level: IPPROTO_TCP, name: TCP_KEEPIDLE, value: 15 },
  { level: IPPROTO_TCP, name: TCP_KEEPINTVL, value: 15 },
];

/** How long bytes that were sent before a reset may take to arrive, and how often to look. */
const RESET_PATIENCE_MS = 1000;
const RESET_POLL_MS = 10;

type Phase = 'dialling' | 'open' | 'resetting' | 'over';

/**
 * One client, from accept to the end of both sides.
 *
 * A reset or failure of one side is a reset of the other, never a clean end, so that nobody takes half a stream for a
 * whole one; but what was sent before it arrives first, as it would without a proxy. The same holds where this program
 * cuts a connection itself. Only a client for whom there is no endpoint is closed without a reset, as upstream.
 */
export class TcpConnection extends Deadline {
  readonly port: PortState;
  /** The endpoint being dialled, or the one that answered. */
  target: Target | undefined;
  readonly #client: TcpSide;
  #backend: TcpSide | undefined;
  #phase: Phase = 'dialling';
  /** Only while dialling. */
  #dial: Dial | undefined;
  /** One direction has come to its end, and something must move in the other. */
  #isHalfOpen = false;
  /** Only while resetting. */
  #broken: TcpSide | undefined;
  #giveUpMs = 0;

  constructor(port: PortState, clientFd: number, clientAddress: string) {
    super();
    this.port = port;
    this.#client = new TcpSide(this, clientFd, 'receivedBytes');
    this.#dial = { pick: port.picker.pick(clientAddress, port.worker.loop.nowMs), clientAddress, attempts: 0, beganMs: 0 };
    port.count('connections');
    add(port.counters, COUNTER.active, 1);
  }
}
