import { ipBytes, ipText } from '../util/ip-bytes.ts';
import { Memory } from './memory.ts';
import { AF_INET, AF_INET6 } from './socket.ts';

/*
 * struct sockaddr_in   family 0–1 (machine's order) · port 2–3 (network's) · address 4–7
 * struct sockaddr_in6  family 0–1 · port 2–3 · flow 4–7 · address 8–23 · scope 24–27
 */
const V4 = { bytes: 16, address: 4 };
const V6 = { bytes: 28, address: 8 };
const V4_MAPPED_PREFIX = Buffer.from('00000000000000000000ffff', 'hex');

export function familyOfText(address: string): number {
  return address.includes(':') ? AF_INET6 : AF_INET;
}

/** `address` is numeric and valid: callers have it from validated objects or flags. */
export function encodeSocketAddress(address: string, port: number): Memory {
  const family = familyOfText(address);
  const layout = family === AF_INET6 ? V6 : V4;
  const memory = new Memory(layout.bytes);
  memory.words()[0] = family;
  memory.bytes.writeUInt16BE(port, 2);
  memory.bytes.set(ipBytes(address), layout.address);
  return memory;
}

/** The IP address in a socket address, as the kernel prints it; an IPv4-mapped address as the IPv4 address. */
export function decodeAddress(bytes: Buffer): string {
  if (bytes.readUInt8(0) === AF_INET) return ipText(bytes.subarray(V4.address, V4.address + 4));
  const v6 = bytes.subarray(V6.address, V6.address + 16);
  return ipText(v6.subarray(0, 12).equals(V4_MAPPED_PREFIX) ? v6.subarray(12) : v6);
}

export function decodePort(bytes: Buffer): number {
  return bytes.readUInt16BE(2);
}
