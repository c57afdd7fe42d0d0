import type { ListenSpec } from '../../model/data-plane.ts';
import { congestionOption } from '../../sys/congestion-control.ts';
import { close } from '../../sys/descriptor.ts';
import { Memory } from '../../sys/memory.ts';
import {
  AF_INET,
  AF_INET6,
  allowFragments,
  bindTo,
  getsockname,
  IP_PKTINFO,
  IPPROTO_IP,
  IPPROTO_IPV6,
  IPV6_RECVPKTINFO,
  IPV6_V6ONLY,
  listen,
  SO_RCVBUF,
  SO_RCVBUFFORCE,
  SO_REUSEADDR,
  SO_REUSEPORT,
  SO_SNDBUF,
  SO_SNDBUFFORCE,
  SOCK_DGRAM,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  SOL_SOCKET,
  type SocketOption,
  setOption,
  socket,
} from '../../sys/socket.ts';
import { decodePort, encodeSocketAddress, familyOfText } from '../../sys/socket-address.ts';
import { must } from '../../sys/sys-error.ts';
import { toListenError } from '../errors.ts';
import { TCP_OPTIONS, URGENT_IN_LINE } from './worker/endpoint-sockets.ts';

/** How many clients may wait to be accepted; the kernel limits it to `net.core.somaxconn` (4096 by default). */
const BACKLOG = 4096;

/** Room for bursts of datagrams of all clients of a Service port. The kernel reserves nothing. */
const BUFFER_BYTES = 4 << 20;

/** Each family has a listener of its own, and expects no IPv4 addresses written as IPv6. */
const V6_ONLY: SocketOption = { level: IPPROTO_IPV6, name: IPV6_V6ONLY, value: 1 };

export interface ListenSocket {
  readonly fd: number;
  readonly localPort: number;
}

/**
 * The main thread opens it and lends it to a worker, so that it outlives a worker that fails: clients that connect
 * meanwhile wait in its queue. Throws a {@link ListenError} and leaves nothing behind.
 */
export function openListenSocket(spec: ListenSpec, congestionControl?: string): ListenSocket {
  let fd = -1;
  try {
    const isV6 = spec.family === 'IPv6';
    fd = must('socket', socket(familyOfText(spec.address), spec.protocol === 'TCP' ? SOCK_STREAM : SOCK_DGRAM));
    if (isV6) must('setsockopt', setOption(fd, V6_ONLY));
    prepareListener(fd, spec, congestionControl);
    must('bind', bindTo(fd, encodeSocketAddress(spec.address, spec.port)));
    if (spec.protocol === 'TCP') must('listen', listen(fd, BACKLOG));
    return { fd, localPort: spec.port === 0 ? portOf(fd) : spec.port };
  } catch (err) {
    if (fd >= 0) close(fd);
    throw toListenError(spec, err);
  }
}

/**
 * Opens further sockets at the address and port of a UDP socket. From then on the kernel spreads the clients over all
 * of them by a hash of their addresses and ports. Throws an Error and leaves nothing behind.
 */
export function openMoreSockets(first: ListenSocket, spec: ListenSpec, count: number): readonly number[] {
  const fds: number[] = [];
  // Not before the first one was bound: the kernel could have given it a port that another Service has.
  const shared = { level: SOL_SOCKET, name: SO_REUSEPORT, value: 1 };
  try {
    must('setsockopt', setOption(first.fd, shared));
    for (let i = 0; i < count; i++) {
      const fd = must('socket', socket(familyOfText(spec.address), SOCK_DGRAM));
      fds.push(fd);
      must('setsockopt', setOption(fd, shared));
      if (spec.family === 'IPv6') must('setsockopt', setOption(fd, V6_ONLY));
      prepareListener(fd, spec);
      must('bind', bindTo(fd, encodeSocketAddress(spec.address, first.localPort)));
    }
    return fds;
  } catch (err) {
    for (const fd of fds) close(fd);
    setOption(first.fd, { ...shared, value: 0 });
    throw toListenError(spec, err);
  }
}

/** Also for a socket that a predecessor opened, which may not have set every option. Throws a SysError. */
export function prepareListener(
  fd: number,
  { protocol, family }: Pick<ListenSpec, 'protocol' | 'family'>,
  congestionControl?: string,
): void {
  if (protocol === 'TCP') prepareTcp(fd, congestionControl);
  else prepareUdp(fd, family === 'IPv6');
}

function portOf(fd: number): number {
  const address = new Memory(SOCKET_ADDRESS_BYTES);
  must('getsockname', getsockname(fd, address));
  return decodePort(address.bytes);
}

function prepareTcp(fd: number, congestionControl: string | undefined): void {
  // Without it a port stays taken for a minute after its last connection. Linux still refuses a second listener.
  must('setsockopt', setOption(fd, { level: SOL_SOCKET, name: SO_REUSEADDR, value: 1 }));
  for (const option of [...TCP_OPTIONS, URGENT_IN_LINE]) must('setsockopt', setOption(fd, option));
  if (congestionControl !== undefined) {
    must('setsockopt TCP_CONGESTION', setOption(fd, congestionOption(congestionControl)));
  }
}

/** Without SO_REUSEADDR: with it two Services could be given one port. */
function prepareUdp(fd: number, isV6: boolean): void {
  const packetInfo = isV6
    ? { level: IPPROTO_IPV6, name: IPV6_RECVPKTINFO, value: 1 }
    : { level: IPPROTO_IP, name: IP_PKTINFO, value: 1 };
  must('setsockopt', setOption(fd, packetInfo));
  must('setsockopt', allowFragments(fd, isV6 ? AF_INET6 : AF_INET));
  for (const [forced, asked] of [
    [SO_RCVBUFFORCE, SO_RCVBUF],
    [SO_SNDBUFFORCE, SO_SNDBUF],
  ] as const) {
    // With CAP_NET_ADMIN, which a proxy that writes rules has, it may exceed `net.core.rmem_max` and `wmem_max`.
    if (setOption(fd, { level: SOL_SOCKET, name: forced, value: BUFFER_BYTES }) < 0) {
      setOption(fd, { level: SOL_SOCKET, name: asked, value: BUFFER_BYTES });
    }
  }
}
