import {
  IPPROTO_TCP,
  SO_KEEPALIVE,
  SO_OOBINLINE,
  SOL_SOCKET,
  type SocketOption,
  TCP_KEEPIDLE,
  TCP_KEEPINTVL,
  TCP_NODELAY,
} from '../../../sys/socket.ts';

/**
 * For both sides of a connection; accepted sockets inherit them from their listener. Go's `net` package, and so upstream,
 * sets no delay and a keepalive every 15 s by default.
 */
export const TCP_OPTIONS: readonly SocketOption[] = [
  { level: IPPROTO_TCP, name: TCP_NODELAY, value: 1 },
  { level: SOL_SOCKET, name: SO_KEEPALIVE, value: 1 },
  { level: IPPROTO_TCP, name: TCP_KEEPIDLE, value: 15 },
  { level: IPPROTO_TCP, name: TCP_KEEPINTVL, value: 15 },
];

/** An urgent byte stays in its place in the stream. */
export const URGENT_IN_LINE: SocketOption = { level: SOL_SOCKET, name: SO_OOBINLINE, value: 1 };
