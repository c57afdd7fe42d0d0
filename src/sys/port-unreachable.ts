import { close } from './descriptor.ts';
import { Memory } from './memory.ts';
import { AF_INET, AF_INET6, bindTo, connect, SOCK_RAW, send, socket } from './socket.ts';

const IPPROTO_ICMP = 1;
const IPPROTO_UDP = 17;
const IPPROTO_ICMPV6 = 58;
const UDP_HEADER = 8;

/** By family. `type` and `code` mean "port unreachable". `at`: of the address in its socket address. */
const FORMS = {
  [AF_INET]: { protocol: IPPROTO_ICMP, type: 3, code: 3, ipHeader: 20, at: 4, addressBytes: 4 },
  [AF_INET6]: { protocol: IPPROTO_ICMPV6, type: 1, code: 4, ipHeader: 40, at: 8, addressBytes: 16 },
} as const;

const ICMP_HEADER = 8;
/** Of a `sockaddr_in6`. */
const SCOPE = 24;

/**
 * Tells the client that nobody takes its datagram to `local`, as the kernel does for a closed port. Both are socket
 * addresses. The error quotes the datagram as it arrived here, so connection tracking knows whose it is: it translates
 * the error back to the address that the client has asked. 0, or a negative errno; needs CAP_NET_RAW.
 *
 * A socket for each, because a lasting one would get a copy of all ICMP packets of the node.
 */
export function sendPortUnreachable(client: Memory, local: Memory): number {
  const family = familyOf(client.bytes);
  const form = FORMS[family];
  const fd = socket(family, SOCK_RAW, form.protocol);
  if (fd < 0) return fd;
  // A link-local address needs its interface.
  if (family === AF_INET6) local.bytes.writeUInt32LE(client.bytes.readUInt32LE(SCOPE), SCOPE);
  let status = bindTo(fd, local);
  if (status === 0) status = connect(fd, client);
  if (status === 0) {
    const message = Memory.of(portUnreachable(client.bytes, local.bytes));
    status = Math.min(0, send(fd, message, 0, message.length));
  }
  close(fd);
  return status;
}

/** The ICMP message. Of the datagram it quotes the headers alone, without payload. */
function portUnreachable(client: Buffer, local: Buffer): Buffer {
  const family = familyOf(client);
  const { type, code, ipHeader, at, addressBytes } = FORMS[family];
  const message = Buffer.alloc(ICMP_HEADER + ipHeader + UDP_HEADER);
  const [ip, udp] = [message.subarray(ICMP_HEADER), message.subarray(ICMP_HEADER + ipHeader)];
  if (family === AF_INET) {
    ip.writeUInt8(0x45, 0);
    ip.writeUInt16BE(ipHeader + UDP_HEADER, 2);
    ip.writeUInt8(64, 8);
    ip.writeUInt8(IPPROTO_UDP, 9);
  } else {
    ip.writeUInt8(0x60, 0);
    ip.writeUInt16BE(UDP_HEADER, 4);
    ip.writeUInt8(IPPROTO_UDP, 6);
    ip.writeUInt8(64, 7);
  }
  client.copy(ip, ipHeader - 2 * addressBytes, at, at + addressBytes);
  local.copy(ip, ipHeader - addressBytes, at, at + addressBytes);
  if (family === AF_INET) ip.writeUInt16BE(checksum(ip.subarray(0, ipHeader)), 10);
  client.copy(udp, 0, 2, 4);
  local.copy(udp, 2, 2, 4);
  udp.writeUInt16BE(UDP_HEADER, 4);
  message.writeUInt8(type, 0);
  message.writeUInt8(code, 1);
  // The kernel computes that of ICMPv6.
  if (family === AF_INET) message.writeUInt16BE(checksum(message), 2);
  return message;
}

function familyOf(address: Buffer): typeof AF_INET | typeof AF_INET6 {
  return address.readUInt16LE(0) === AF_INET ? AF_INET : AF_INET6;
}

/** RFC 1071, of an even number of bytes. */
function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let i = 0; i < bytes.length; i += 2) sum += bytes.readUInt16BE(i);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
