import { ipBytes, ipText, ipv4Word } from '../util/ip-bytes.ts';
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
  const memory = new Memory(layoutOf(address).bytes);
  encodeInto(memory.bytes, address, port);
  return memory;
}

/** The words of a socket address that the kernel does not read; without further garbage for IPv4. */
export function socketAddressWords(address: string, port: number): Int32Array {
  const words = new Int32Array(layoutOf(address).bytes / 4);
  if (familyOfText(address) === AF_INET) {
    words[0] = AF_INET | (swapped(port) << 16);
    words[1] = ipv4Word(address);
    return words;
  }
  encodeInto(Buffer.from(words.buffer), address, port);
  return words;
}

function layoutOf(address: string) {
  return familyOfText(address) === AF_INET6 ? V6 : V4;
}

function encodeInto(bytes: Buffer, address: string, port: number): void {
  // The machine's order is little-endian on all supported machines.
  bytes.writeUInt16LE(familyOfText(address), 0);
  bytes.writeUInt16BE(port, 2);
  bytes.set(ipBytes(address), layoutOf(address).address);
}

/** The IP address in a socket address, as the kernel prints it; an IPv4-mapped address as the IPv4 address. */
export function decodeAddress(bytes: Buffer): string {
  if (bytes.readUInt8(0) === AF_INET) return ipText(bytes.subarray(V4.address, V4.address + 4));
  const v6 = bytes.subarray(V6.address, V6.address + 16);
  return ipText(v6.subarray(0, 12).equals(V4_MAPPED_PREFIX) ? v6.subarray(12) : v6);
}

/** The same of its words, without garbage for IPv4. */
export function addressIn(words: Int32Array): string {
  const family = (words[0] as number) & 0xffff;
  if (family !== AF_INET) return decodeAddress(Buffer.from(words.buffer, words.byteOffset, words.byteLength));
  const v4 = words[1] as number;
  return `${v4 & 0xff}.${(v4 >>> 8) & 0xff}.${(v4 >>> 16) & 0xff}.${v4 >>> 24}`;
}

export function portIn(words: Int32Array): number {
  return swapped((words[0] as number) >>> 16);
}

/** A port between the machine's order and the network's. */
function swapped(port: number): number {
  return ((port & 0xff) << 8) | (port >> 8);
}

export function decodePort(bytes: Buffer): number {
  return bytes.readUInt16BE(2);
}
