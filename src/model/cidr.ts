import { type Address, familyOf, parseAddress } from './address.ts';

/** A block of addresses. `network` has every bit beyond the prefix cleared, as iptables-save prints it. */
export interface Cidr {
  readonly network: Address;
  readonly prefixLength: number;
}

/**
 * `10.0.0.0/8`, `2001:db8::/32`; bits beyond the prefix are cleared, as Go's `net.ParseCIDR` does for upstream:
 * "192.168.50.10/24" is 192.168.50.0/24. `undefined` when `text` is no CIDR.
 */
export function parseCidr(text: string): Cidr | undefined {
  const [, host = '', prefixText = ''] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const address = parseAddress(host);
  if (address === undefined) return undefined;
  const isIPv4 = familyOf(address) === 'IPv4';
  const bytes = addressBytes(address);
  const prefixLength = Number(prefixText);
  if (prefixLength > bytes.length * 8) return undefined;
  const masked = bytes.map((byte, index) => byte & (0xff00 >> Math.min(8, Math.max(0, prefixLength - index * 8))));
  // Through parseAddress again: only it knows the canonical spelling.
  const network = parseAddress(isIPv4 ? masked.join('.') : ipv6Text(masked));
  return network === undefined ? undefined : { network, prefixLength };
}

/** In network order: 4 or 16 of them. */
export function addressBytes(address: Address): readonly number[] {
  return familyOf(address) === 'IPv4' ? address.split('.').map(Number) : ipv6Bytes(address);
}

export function cidrContains({ network, prefixLength }: Cidr, address: Address): boolean {
  return parseCidr(`${address}/${prefixLength}`)?.network === network;
}

function ipv6Bytes(address: string): number[] {
  // The canonical spelling has one "::" at most, and may end in dotted quads for mapped addresses.
  const [head = '', tail] = address.split('::');
  const left = groupBytes(head);
  const right = groupBytes(tail ?? '');
  return [...left, ...new Array<number>(16 - left.length - right.length).fill(0), ...right];
}

function groupBytes(groups: string): number[] {
  if (groups === '') return [];
  return groups.split(':').flatMap((group) => {
    if (group.includes('.')) return group.split('.').map(Number);
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}

function ipv6Text(bytes: readonly number[]): string {
  const groups: string[] = [];
  for (let i = 0; i < bytes.length; i += 2) groups.push((((bytes[i] ?? 0) << 8) | (bytes[i + 1] ?? 0)).toString(16));
  return groups.join(':');
}

/** The block of this address alone. */
export function addressBlock(network: Address): Cidr {
  return { network, prefixLength: familyOf(network) === 'IPv4' ? 32 : 128 };
}
