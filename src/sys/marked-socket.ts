import { close } from './descriptor.ts';
import {
  AF_INET,
  AF_INET6,
  bindTo,
  IPPROTO_IPV6,
  IPV6_V6ONLY,
  markOption,
  SOCK_DGRAM,
  SOCK_STREAM,
  setOption,
  socket,
} from './socket.ts';
import { encodeSocketAddress, familyOfText } from './socket-address.ts';
import { must } from './sys-error.ts';

const ANY_IPV4 = encodeSocketAddress('0.0.0.0', 0);
const ANY_IPV6 = encodeSocketAddress('::', 0);

/** Returns the descriptor of a new socket with this mark, for a connection to `address`. Throws a SysError. */
export function openMarkedSocket(address: string, protocol: 'TCP' | 'UDP', mark: number): number {
  const fd = openUnbound(address, protocol, mark);
  if (protocol === 'TCP') return fd;
  // Bound before Node takes it: Node (libuv's uv_udp_open) sets SO_REUSEADDR, and then the kernel could choose a port
  // of another flow, which would receive this flow's replies.
  const status = bindTo(fd, familyOfText(address) === AF_INET6 ? ANY_IPV6 : ANY_IPV4);
  if (status < 0) close(fd);
  must('bind', status);
  return fd;
}

/** The same without a local port. A UDP socket must get one before Node takes it. */
export function openUnbound(address: string, protocol: 'TCP' | 'UDP', mark: number): number {
  const family = familyOfText(address);
  if (protocol === 'TCP') return open(family, SOCK_STREAM, mark);
  const fd = open(family, SOCK_DGRAM, mark);
  if (family === AF_INET6) setOption(fd, { level: IPPROTO_IPV6, name: IPV6_V6ONLY, value: 1 });
  return fd;
}

/** Throws a SysError when this process may not mark sockets. */
export function checkMarking(mark: number): void {
  close(open(AF_INET, SOCK_DGRAM, mark));
}

function open(family: number, type: number, mark: number): number {
  const fd = must('socket', socket(family, type));
  const status = setOption(fd, markOption(mark));
  if (status < 0) close(fd);
  must('setsockopt SO_MARK', status);
  return fd;
}
