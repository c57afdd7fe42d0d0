import { calls, result } from './calls.ts';
import { Memory } from './memory.ts';

export const AF_INET = 2;
export const AF_INET6 = 10;
export const AF_UNIX = 1;
export const ADDRESS_FAMILY = { IPv4: AF_INET, IPv6: AF_INET6 } as const;
export const SOCK_STREAM = 1;
export const SOCK_DGRAM = 2;
export const SOCK_RAW = 3;
export const SOCK_SEQPACKET = 5;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
export const MSG_NOSIGNAL = 0x4000;
/** More data follows at once: the kernel keeps an incomplete packet until then. */
export const MSG_MORE = 0x8000;
const SHUT_WR = 1;
const SIOCOUTQ = 0x5411;

export const SOL_SOCKET = 1;
export const SO_REUSEADDR = 2;
export const SO_REUSEPORT = 15;
const SO_ERROR = 4;
export const SO_SNDBUF = 7;
export const SO_RCVBUF = 8;
export const SO_KEEPALIVE = 9;
export const SO_OOBINLINE = 10;
const SO_LINGER = 13;
const SO_PEERCRED = 17;
export const SO_SNDBUFFORCE = 32;
export const SO_RCVBUFFORCE = 33;
const SO_MARK = 36;
export const SO_BINDTOIFINDEX = 62;
/** Of both families, at their own level (uapi/linux/netfilter_ipv4.h, netfilter_ipv6/ip6_tables.h). */
const SO_ORIGINAL_DST = 80;
export const IPPROTO_IP = 0;
export const IP_PKTINFO = 8;
const IP_MTU_DISCOVER = 10;
const IP_BIND_ADDRESS_NO_PORT = 24;
const IP_LOCAL_PORT_RANGE = 51;
export const IPPROTO_TCP = 6;
export const TCP_NODELAY = 1;
export const TCP_KEEPIDLE = 4;
export const TCP_KEEPINTVL = 5;
const TCP_INFO = 11;
export const IPPROTO_IPV6 = 41;
const IPV6_MTU_DISCOVER = 23;
export const IPV6_V6ONLY = 26;
export const IPV6_RECVPKTINFO = 49;
export const IPV6_PKTINFO = 50;

/** Long enough for the socket address of either family. */
export const SOCKET_ADDRESS_BYTES = 28;

/* Memory that all calls share: each is over before the next begins, and every thread has its own. */

const option = new Memory(8);
const optionWords = option.words();
const optionLength = new Memory(4);
const optionLengthWords = optionLength.words();
/** `struct linger`: on, 0 seconds. */
const abort = new Memory(8);
abort.words()[0] = 1;
/** The beginning of `struct tcp_info`, up to `tcpi_total_retrans`: the same in every kernel (uapi/linux/tcp.h). */
const tcpInfo = new Memory(104);
/** TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK and CLOSING (include/net/tcp_states.h). */
const ENDED_BY_PEER: ReadonlySet<number> = new Set([6, 7, 8, 9, 11]);
/** `struct ucred`: pid, uid, gid. */
const credentials = new Memory(12);
/** Of the family AF_UNSPEC. */
const nowhere = new Memory(16);

/** A non-blocking socket: the descriptor, or a negative errno. `protocol`: 0 is the type's default. */
export function socket(family: number, type: number, protocol = 0): number {
  return result(calls.socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}

/** Writes the two ends of a new pair of connected Unix sockets to `fds`. 0, or a negative errno. */
export function socketpair(type: number, fds: Int32Array): number {
  const status = result(calls.socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, option.address));
  if (status === 0) fds.set(optionWords);
  return status;
}

export function bindTo(fd: number, address: Memory): number {
  return result(calls.bind(fd, address.address, address.length));
}

export function listen(fd: number, backlog: number): number {
  return result(calls.listen(fd, backlog));
}

/**
 * The new descriptor, or a negative errno. Writes the peer's address to `peer` ({@link SOCKET_ADDRESS_BYTES} long).
 */
export function accept(fd: number, peer: Memory): number {
  optionLengthWords[0] = SOCKET_ADDRESS_BYTES;
  return result(calls.accept4(fd, peer.address, optionLength.address, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

export function connect(fd: number, address: Memory): number {
  return result(calls.connect(fd, address.address, address.length));
}

/**
 * Takes a socket from its peer and, unless it was bound to one, from its port. It can be connected again, and keeps its
 * options. A TCP connection that has not ended both ways is reset.
 */
export function disconnect(fd: number): number {
  return connect(fd, nowhere);
}

/** Half-close: ends the direction in which `fd` sends. */
export function shutdownWrite(fd: number): number {
  return result(calls.shutdown(fd, SHUT_WR));
}

/** Writes the local address of `fd` to `address`. */
export function getsockname(fd: number, address: Memory): number {
  optionLengthWords[0] = SOCKET_ADDRESS_BYTES;
  return result(calls.getsockname(fd, address.address, optionLength.address));
}

/** Writes the peer's address of `fd` to `address`. */
export function getpeername(fd: number, address: Memory): number {
  optionLengthWords[0] = SOCKET_ADDRESS_BYTES;
  return result(calls.getpeername(fd, address.address, optionLength.address));
}

/**
 * Writes the address that the peer of an accepted TCP connection asked for, before NAT, to `address`
 * ({@link SOCKET_ADDRESS_BYTES} long). 0, or a negative errno: ENOENT where connection tracking does not know it.
 */
export function originalDestination(fd: number, family: number, address: Memory): number {
  const level = family === AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  return getOption(fd, level, SO_ORIGINAL_DST, address);
}

export function setOption(fd: number, { level, name, value }: SocketOption): number {
  if (typeof value !== 'number') return result(calls.setsockopt(fd, level, name, value.address, value.length));
  optionWords[0] = value;
  return result(calls.setsockopt(fd, level, name, option.address, 4));
}

/** iptables rules can match the mark of a socket's packets. Needs CAP_NET_ADMIN. */
export function markOption(mark: number): SocketOption {
  return { level: SOL_SOCKET, name: SO_MARK, value: mark };
}

const BIND_WITHOUT_PORT: SocketOption = { level: IPPROTO_IP, name: IP_BIND_ADDRESS_NO_PORT, value: 1 };

/** A later bind to port 0 takes no port. `connect` takes one, which only this connection then has. */
export function bindLater(fd: number): number {
  return setOption(fd, BIND_WITHOUT_PORT);
}

/**
 * Only this port will be taken. 0, or a negative errno: ENOPROTOOPT before Linux 6.3. It must be one that the kernel
 * gives out.
 */
export function limitPorts(fd: number, port: number): number {
  optionWords[0] = (port << 16) | port;
  return result(calls.setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, option.address, 4));
}

export interface SocketOption {
  readonly level: number;
  readonly name: number;
  readonly value: number | Memory;
}

const IPV4_FRAGMENTS: SocketOption = { level: IPPROTO_IP, name: IP_MTU_DISCOVER, value: 0 };
const IPV6_FRAGMENTS: SocketOption = { level: IPPROTO_IPV6, name: IPV6_MTU_DISCOVER, value: 0 };

/**
 * Lets routers fragment what a UDP socket sends (IP_PMTUDISC_DONT). 0, or a negative errno.
 *
 * A proxy cannot tell a client that a link behind it has a smaller MTU; NAT in the kernel would forward the ICMP error.
 * With path MTU discovery, the default, the first datagram that is too big is lost, and all of them where ICMP is
 * filtered; a connected socket fails with EMSGSIZE. Without it, they arrive in fragments. Only the sender can fragment
 * IPv6: there the first datagram is lost, and the kernel fragments the next. The price: a client that probes for the
 * largest size, as QUIC does, finds only the MTU of its path to this node.
 */
export function allowFragments(fd: number, family: number): number {
  return setOption(fd, family === AF_INET6 ? IPV6_FRAGMENTS : IPV4_FRAGMENTS);
}

/** Reads an option of any size. `memory` holds the kernel's input, then its output. 0, or a negative errno. */
export function getOption(fd: number, level: number, name: number, memory: Memory): number {
  optionLengthWords[0] = memory.length;
  return result(calls.getsockopt(fd, level, name, memory.address, optionLength.address));
}

/** Returns and clears the socket's pending errno (0 for none); or a negative errno. */
export function takeError(fd: number): number {
  const status = getOption(fd, SOL_SOCKET, SO_ERROR, option);
  return status < 0 ? status : (optionWords[0] as number);
}

export interface PeerCredentials {
  /** 0 when it is in a PID namespace that is not visible from here. */
  readonly pid: number;
  readonly uid: number;
}

/** The process at the other end of a Unix stream when it was connected, or a negative errno. */
export function peerCredentials(fd: number): PeerCredentials | number {
  const status = getOption(fd, SOL_SOCKET, SO_PEERCRED, credentials);
  if (status < 0) return status;
  const [pid = 0, uid = 0] = credentials.words();
  return { pid, uid: uid >>> 0 };
}

/** Makes a later close reset the connection: the peer gets a RST, and queued data are dropped. */
export function resetOnClose(fd: number): number {
  return result(calls.setsockopt(fd, SOL_SOCKET, SO_LINGER, abort.address, 8));
}

/** Bytes that the peer has not acknowledged yet, or a negative errno. */
export function unacknowledgedBytes(fd: number): number {
  const status = result(calls.ioctl(fd, SIOCOUTQ, option.address));
  return status < 0 ? status : (optionWords[0] as number);
}

/** What the kernel knows about a TCP connection's peer. */
export interface PeerState {
  /** It has ended its direction. Bytes from before may still be unread. */
  readonly hasEnded: boolean;
  /** How many retransmissions, or probes of a closed window, it has left unanswered in a row. */
  readonly unanswered: number;
  /** Milliseconds since its last acknowledgement. */
  readonly silentMs: number;
}

/** `undefined` when the kernel does not report it. */
export function peerState(fd: number): PeerState | undefined {
  if (getOption(fd, IPPROTO_TCP, TCP_INFO, tcpInfo) < 0) return undefined;
  const [state = 0, , retransmits = 0, probes = 0] = tcpInfo.bytes;
  return {
    hasEnded: ENDED_BY_PEER.has(state),
    unanswered: retransmits + probes,
    silentMs: tcpInfo.bytes.readUInt32LE(56),
  };
}

/** How many packets of a TCP connection have been sent again; or a negative errno. */
export function repeatedPackets(fd: number): number {
  const status = getOption(fd, IPPROTO_TCP, TCP_INFO, tcpInfo);
  return status < 0 ? status : tcpInfo.bytes.readUInt32LE(100);
}

/** Bytes received into `memory` at `offset` (0: end of stream), or a negative errno. */
export function recv(fd: number, memory: Memory, offset: number, length: number): number {
  return result(calls.recv(fd, memory.at(offset, length), length, 0));
}

/** Bytes sent from `memory` at `offset`, or a negative errno. Never raises SIGPIPE. `flags`: 0 or {@link MSG_MORE}. */
export function send(fd: number, memory: Memory, offset: number, length: number, flags = 0): number {
  return result(calls.send(fd, memory.at(offset, length), length, MSG_NOSIGNAL | flags));
}
