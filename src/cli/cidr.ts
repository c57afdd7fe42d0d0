import { type Address, familyOf, parseAddress } from '../model/address.ts';
import { UsageError } from './usage-error.ts';

/** A block of addresses. `network` has every bit beyond the prefix cleared, as iptables-save prints it. */
export interface Cidr {
  readonly network: Address;
  readonly prefixLength: number;
}

/**
 * `10.0.0.0/8`, `2001:db8::/32`. Bits beyond the prefix are cleared, as Go's `net.ParseCIDR` does for upstream:
 * `10.1.2.3/8` is `10.0.0.0/8`.
 */
export function parseCidr(text: string): Cidr {
  if (text === 'primary') throw new UsageError('"primary" is not supported yet; write the CIDRs of the node addresses');
  const match = /^(.+)\/(\d{1,3})$/.exec(text);
  const address = parseAddress(match?.[1] ?? '');
  const prefixLength = Number(match?.[2]);
  if (address === undefined || prefixLength > bitsOf(address)) {
    throw new UsageError('not a CIDR; write an address and a prefix length, such as 192.0.2.0/24');
  }
  return { network: masked(address, prefixLength), prefixLength };
}

function bitsOf(address: Address): number {
  return familyOf(address) === 'IPv4' ? 32 : 128;
}

function masked(address: Address, prefixLength: number): Address {
  const hostBits = BigInt(bitsOf(address) - prefixLength);
  const network = (toInteger(address) >> hostBits) << hostBits;
  // Through parseAddress again: only it knows the canonical spelling.
  return parseAddress(toText(network, address)) ?? address;
}

function toInteger(address: Address): bigint {
  if (familyOf(address) === 'IPv4') {
    return address.split('.').reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  }
  // The last 32 bits may be written as IPv4 ("::ffff:192.0.2.1"): turned into two groups first.
  const hex = address.replace(/[\d.]+\.[\d.]+$/, (v4) => {
    const bits = toInteger(v4 as Address);
    return `${(bits >> 16n).toString(16)}:${(bits & 0xffffn).toString(16)}`;
  });
  const [head = '', tail] = hex.split('::');
  const groups = (part: string) => (part === '' ? [] : part.split(':'));
  const left = groups(head);
  const right = groups(tail ?? '');
  const gap = new Array<string>(8 - left.length - right.length).fill('0');
  return [...left, ...gap, ...right].reduce((sum, group) => (sum << 16n) | BigInt(`0x${group}`), 0n);
}

function toText(value: bigint, like: Address): string {
  const v4 = familyOf(like) === 'IPv4';
  const [count, width, radix] = v4 ? [4, 8n, 10] : [8, 16n, 16];
  const parts = Array.from({ length: count }, (_, i) =>
    BigInt.asUintN(Number(width), value >> (width * BigInt(count - 1 - i))),
  );
  return parts.map((part) => part.toString(radix)).join(v4 ? '.' : ':');
}
