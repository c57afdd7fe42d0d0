import { SocketAddress } from 'node:net';

const DOT = 0x2e;
const ZERO = 0x30;

/** The 4 or 16 bytes of a valid IP address without a zone, in network order. */
export function ipBytes(address: string): readonly number[] {
  if (!address.includes(':')) return address.split('.').map(Number);
  const [left = [], right = []] = address.split('::').map(groupBytes);
  return [...left, ...new Array<number>(16 - left.length - right.length).fill(0), ...right];
}

/** The bytes of a valid IPv4 address as a little-endian word. */
export function ipv4Word(address: string): number {
  let word = 0;
  let byte = 0;
  let shift = 0;
  for (let i = 0; i < address.length; i++) {
    const code = address.charCodeAt(i);
    if (code === DOT) {
      word |= byte << shift;
      shift += 8;
      byte = 0;
    } else byte = byte * 10 + code - ZERO;
  }
  return word | (byte << shift);
}

function groupBytes(groups: string): number[] {
  if (groups === '') return [];
  return groups.split(':').flatMap((group) => {
    // IPv4-mapped addresses end in dotted quads.
    if (group.includes('.')) return group.split('.').map(Number);
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}

/** The address of 4 or 16 bytes, as the kernel prints it. */
export function ipText(bytes: ArrayLike<number>): string {
  if (bytes.length === 4) return `${bytes[0]}.${bytes[1]}.${bytes[2]}.${bytes[3]}`;
  const groups = Array.from({ length: 8 }, (_, i) =>
    (((bytes[2 * i] ?? 0) << 8) | (bytes[2 * i + 1] ?? 0)).toString(16),
  );
  return new SocketAddress({ address: groups.join(':'), family: 'ipv6' }).address;
}
