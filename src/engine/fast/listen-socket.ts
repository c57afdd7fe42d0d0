import type { ListenSpec } from '../../model/data-plane.ts';
import { congestionOption } from '../../sys/congestion-control.ts';
import { putLocalAddress, type ReplyPath } from '../../sys/datagram-inbox.ts';
import { close } from '../../sys/descriptor.ts';
import { Memory } from '../../sys/memory.ts';
import {
  ADDRESS_FAMILY,
  AF_INET,
  AF_INET6,
  allowFragments,
  bindTo,
  connect,
  getsockname,
  IP_PKTINFO,
  IPPROTO_IP,
  IPPROTO_IPV6,
  IPV6_RECVPKTINFO,
  IPV6_V6ONLY,
  listen,
  SO_BINDTOIFINDEX,
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

const [localName, clientName] = [new Memory(SOCKET_ADDRESS_BYTES), new Memory(SOCKET_ADDRESS_BYTES)];
const [localNameWords, clientNameWords] = [localName.words(), clientName.words()];

/** Lets sockets of this user, which have it, too, be bound to the same address and port. */
const SHARED: SocketOption = { level: SOL_SOCKET, name: SO_REUSEPORT, value: 1 };

/** No interface has this number. */
const NOWHERE: SocketOption = { level: SOL_SOCKET, name: SO_BINDTOIFINDEX, value: 0x7fff_ffff };

/**
 * A socket that the datagrams of one client of a UDP listener arrive at from now on (docs/adr/0037). Between `bind` and
 * `connect` it receives those of other clients, too. Throws a SysError and leaves nothing behind.
 */
export function openFlowSocket(listener: number, path: ReplyPath): number {
  const family = path.name.length === clientNameWords.length ? 'IPv6' : 'IPv4';
  must('getsockname', getsockname(listener, localName));
  putLocalAddress(path, localNameWords);
  clientNameWords.set(path.name);
  // Not before the listener was bound: the kernel could have given it a port that another Service has.
  must('setsockopt', setOption(listener, SHARED));
  const fd = must('socket', socket(ADDRESS_FAMILY[family], SOCK_DGRAM));
  try {
    must('setsockopt', setOption(fd, SHARED));
    if (family === 'IPv6') must('setsockopt', setOption(fd, V6_ONLY));
    prepareListener(fd, { protocol: 'UDP', family });
    must('bind', bindTo(fd, localName));
    must('connect', connect(fd, clientName));
    return fd;
  } catch (err) {
    close(fd);
    throw err;
  }
}

/**
 * What its client sends from now on arrives at the listener again. What it has received can still be read. Before Linux
 * 5.1 it goes on receiving until it is closed.
 */
export function stopReceiving(fd: number): void {
  setOption(fd, NOWHERE);
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
