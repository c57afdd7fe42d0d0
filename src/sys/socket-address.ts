import { SocketAddress } from 'node:net';
import { Memory } from './memory.ts';
import { AF_INET, AF_INET6 } from './socket.ts';

/*
 * struct sockaddr_in   family 0–1 (machine's order) · port 2–3 (network's) · address 4–7
 * struct sockaddr_in6  family 0–1 · port 2–3 · flow 4–7 · address 8–23 · scope 24–27
 */
const V4_BYTES = 16;
const V6_BYTES = 28;
const V6_ADDRESS = 8;
const V4_MAPPED_PREFIX = Buffer.from('00000000000000000000ffff', 'hex');

export function familyOfText(address: string): number {
  return address.includes(':') ? AF_INET6 : AF_INET;
}

/** `address` is numeric and valid: callers have it from validated objects or flags. */
export function encodeSocketAddress(address: string, port: number): Memory {
  const isV6 = familyOfText(address) === AF_INET6;
  const memory = new Memory(isV6 ? V6_BYTES : V4_BYTES);
  memory.words()[0] = isV6 ? AF_INET6 : AF_INET;
  memory.bytes.writeUInt16BE(port, 2);
  if (isV6) writeV6(memory.bytes, address);
  else writeV4(memory.bytes, 4, address);
  return memory;
}

/** The IP address in a socket address, in the kernel's spelling; an IPv4-mapped one as the IPv4 address. */
export function decodeAddress(bytes: Buffer): string {
  if (bytes.readUInt8(0) === AF_INET) return formatV4(bytes, 4);
  const v6 = bytes.subarray(V6_ADDRESS, V6_ADDRESS + 16);
  if (v6.subarray(0, 12).equals(V4_MAPPED_PREFIX)) return formatV4(v6, 12);
  return formatAddress(v6);
}

/** The 4 or 16 bytes of an IP address as the kernel spells it. */
export function formatAddress(bytes: Buffer): string {
  if (bytes.length === 4) return formatV4(bytes, 0);
  const groups = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(i * 2).toString(16));
  return new SocketAddress({ address: groups.join(':'), family: 'ipv6' }).address;
}

export function decodePort(bytes: Buffer): number {
  return bytes.readUInt16BE(2);
}

function formatV4(bytes: Buffer, at: number): string {
  return `${bytes[at]}.${bytes[at + 1]}.${bytes[at + 2]}.${bytes[at + 3]}`;
}

function writeV4(bytes: Buffer, at: number, address: string): void {
  address.split('.').forEach((part, i) => {
    bytes.writeUInt8(Number(part), at + i);
  });
}

function writeV6(bytes: Buffer, address: string): void {
  const [head = '', tail] = address.split('::');
  const front = groupsOf(head);
  const back = tail === undefined ? [] : groupsOf(tail);
  front.forEach((group, i) => {
    bytes.writeUInt16BE(group, V6_ADDRESS + i * 2);
  });
  back.forEach((group, i) => {
    bytes.writeUInt16BE(group, V6_ADDRESS + 16 - (back.length - i) * 2);
  });
}

/** The 16-bit groups of one side of `::`; a dotted end (`::ffff:10.0.0.1`) is two of them. */
function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((part) => {
    if (!part.includes('.')) return [Number.parseInt(part, 16)];
    const quad = Buffer.alloc(4);
    writeV4(quad, 0, part);
    return [quad.readUInt16BE(0), quad.readUInt16BE(2)];
  });
}
