import { congestionOption } from '../../sys/congestion-control.ts';
import { close } from '../../sys/descriptor.ts';
import {
  AF_INET,
  AF_INET6,
  bindTo,
  IPPROTO_IPV6,
  IPV6_V6ONLY,
  markOption,
  SOCK_DGRAM,
  SOCK_STREAM,
  type SocketOption,
  setOption,
  socket,
} from '../../sys/socket.ts';
import { encodeSocketAddress, familyOfText } from '../../sys/socket-address.ts';
import { must } from '../../sys/sys-error.ts';

/** What sockets towards endpoints have that Node's own have not. */
export interface EndpointSocketOptions {
  readonly mark?: number | undefined;
  readonly congestionControl?: string | undefined;
}

/** Returns the descriptor of a new socket for a connection to `address`. Throws a SysError. */
export function openEndpointSocket(address: string, protocol: 'TCP' | 'UDP', options: EndpointSocketOptions): number {
  const fd = openUnbound(address, protocol, options);
  if (protocol === 'TCP') return fd;
  // Bound before Node takes it: Node (libuv's uv_udp_open) sets SO_REUSEADDR, and then the kernel could choose a port
  // of another flow, which would receive this flow's replies.
  const status = bindTo(fd, encodeSocketAddress(familyOfText(address) === AF_INET6 ? '::' : '0.0.0.0', 0));
  if (status < 0) close(fd);
  must('bind', status);
  return fd;
}

/** The same without a local port. A UDP socket must get one before Node takes it. */
export function openUnbound(
  address: string,
  protocol: 'TCP' | 'UDP',
  { mark, congestionControl: name }: EndpointSocketOptions,
): number {
  const family = familyOfText(address);
  const options = mark === undefined ? [] : [markOption(mark)];
  if (protocol === 'TCP')
    return open(family, SOCK_STREAM, name === undefined ? options : [...options, congestionOption(name)]);
  const fd = open(family, SOCK_DGRAM, options);
  if (family === AF_INET6) setOption(fd, { level: IPPROTO_IPV6, name: IPV6_V6ONLY, value: 1 });
  return fd;
}

/** Throws a SysError when this process may not mark sockets. */
export function checkMarking(mark: number): void {
  close(open(AF_INET, SOCK_DGRAM, [markOption(mark)]));
}

function open(family: number, type: number, options: readonly SocketOption[]): number {
  const fd = must('socket', socket(family, type));
  for (const option of options) {
    const status = setOption(fd, option);
    if (status < 0) close(fd);
    must('setsockopt', status);
  }
  return fd;
}
