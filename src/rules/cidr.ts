import { familyOf, type IpFamily, parseAddress } from '../model/address.ts';

/** A network as `iptables-save` prints it after `-d`; empty for the network of all addresses, for which it prints none. */
export interface DestinationMatch {
  readonly family: IpFamily;
  readonly match: string;
}

/**
 * Reads `address/prefix` and clears the host bits, as the kernel does ("192.168.50.10/24" → "192.168.50.0/24").
 * `undefined` when `text` is no CIDR.
 */
export function destinationMatch(text: string): DestinationMatch | undefined {
  const [host = '', prefixText = '', ...more] = text.split('/');
  const address = parseAddress(host);
  if (address === undefined || more.length > 0 || !/^\d{1,3}$/.test(prefixText)) return undefined;
  const family = familyOf(address);
  const prefix = Number(prefixText);
  const bytes = family === 'IPv4' ? address.split('.').map(Number) : ipv6Bytes(address);
  if (prefix > bytes.length * 8) return undefined;
  if (prefix === 0) return { family, match: '' };
  const masked = bytes.map((byte, index) => byte & (0xff00 >> Math.min(8, Math.max(0, prefix - index * 8))));
  const network = parseAddress(family === 'IPv4' ? masked.join('.') : ipv6Text(masked));
  return network === undefined ? undefined : { family, match: `-d ${network}/${prefix}` };
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
