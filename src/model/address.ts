import { isIP, SocketAddress } from 'node:net';
import { ipBytes, ipText } from '../util/ip-bytes.ts';

export type IpFamily = 'IPv4' | 'IPv6';

export const FAMILIES: readonly IpFamily[] = ['IPv4', 'IPv6'];

declare const canonical: unique symbol;

/**
 * An IP address as the kernel prints it. Only {@link parseAddress} makes it, so it is safe in iptables text and
 * comparable with `===`.
 */
export type Address = string & { readonly [canonical]: 'Address' };

/**
 * `undefined` unless `text` is a plain IPv4 or IPv6 address (no zone, no port, no prefix). Not ipaddr.js: it reads
 * "010.0.0.1" as 8.0.0.1 and "10.1" as 10.0.0.1, and prints mapped addresses differently from iptables-save.
 */
export function parseAddress(text: string): Address | undefined {
  switch (isIP(text)) {
    case 4:
      return text as Address;
    case 6:
      // isIP accepts a zone ("fe80::1%eth0"), which names an interface of this node.
      return text.includes('%') ? undefined : (new SocketAddress({ address: text, family: 'ipv6' }).address as Address);
    default:
      return undefined;
  }
}

/** Each stands for every address of the machine. */
export const WILDCARDS: Readonly<Record<IpFamily, Address>> = { IPv4: '0.0.0.0' as Address, IPv6: '::' as Address };

export function isWildcard(address: string): boolean {
  return address === WILDCARDS.IPv4 || address === WILDCARDS.IPv6;
}

export function familyOf(address: Address): IpFamily {
  return address.includes(':') ? 'IPv6' : 'IPv4';
}

/** All of 127.0.0.0/8 is local to the kernel, although an interface has only one address of it. */
export function isLoopback(address: Address): boolean {
  return address.startsWith('127.') || address === '::1';
}

/** Of fe80::/10. Every interface of a pod has one, and nobody can listen or send there without naming the link. */
export function needsLink(address: Address): boolean {
  return /^fe[89ab]/.test(address);
}

/** The IPv4 address of an IPv4-mapped one ("::ffff:10.0.0.1"); any other address unchanged. */
export function unmapped(address: string): string {
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice('::ffff:'.length) : address;
}

/**
 * Refused by upstream's `validateNonSpecialIP` (kubernetes `pkg/apis/core/validation`): they reach the node itself, its
 * link, or the metadata service of its cloud (CVE-2021-25737).
 */
const SPECIAL_RANGES: readonly (readonly [reason: string, network: string, prefix: number])[] = [
  ['unspecified', '0.0.0.0', 8],
  ['loopback', '127.0.0.0', 8],
  ['link-local', '169.254.0.0', 16],
  ['multicast', '224.0.0.0', 4],
  // Upstream accepts the rest of 240.0.0.0/4, and some networks use it.
  ['broadcast', '255.255.255.255', 32],
  ['unspecified', '::', 128],
  ['loopback', '::1', 128],
  ['IPv4-compatible', '::', 96],
  ['IPv4-mapped', '::ffff:0:0', 96],
  ['link-local', 'fe80::', 10],
  ['multicast', 'ff00::', 8],
];

const special = SPECIAL_RANGES.map(([reason, start, prefix]) => ({
  reason,
  start: ipBytes(start),
  prefix,
  range: `${start}/${prefix}`,
}));

/** Why this address may be neither a Service address nor an endpoint ("loopback", "multicast", …), or `undefined`. */
export function specialAddressReason(address: Address): string | undefined {
  return specialRangeWithin(addressBlock(address))?.reason;
}

/** A block of addresses. `network` has every bit beyond the prefix cleared, as iptables-save prints it. */
export interface Cidr {
  readonly network: Address;
  readonly prefixLength: number;
}

/** The first range of special addresses of which this block has some: as `loopback` and `127.0.0.0/8`. */
export function specialRangeWithin({ network, prefixLength }: Cidr): { reason: string; range: string } | undefined {
  const bytes = addressBytes(network);
  return special.find(({ start, prefix }) => {
    return start.length === bytes.length && haveSamePrefix(start, bytes, Math.min(prefix, prefixLength));
  });
}

/**
 * Clears bits beyond the prefix, as Go's `net.ParseCIDR` does: "192.168.50.10/24" is 192.168.50.0/24. `undefined` when
 * `text` is no CIDR.
 */
export function parseCidr(text: string): Cidr | undefined {
  const [, host = '', prefixText = ''] = /^([^/]+)\/(\d{1,3})$/.exec(text) ?? [];
  const address = parseAddress(host);
  if (address === undefined) return undefined;
  const bytes = addressBytes(address);
  const prefixLength = Number(prefixText);
  if (prefixLength > bytes.length * 8) return undefined;
  const masked = bytes.map((byte, index) => byte & (0xff00 >> Math.min(8, Math.max(0, prefixLength - index * 8))));
  const network = parseAddress(ipText(masked));
  return network === undefined ? undefined : { network, prefixLength };
}

/** In network order, 4 or 16 bytes. */
export function addressBytes(address: Address): readonly number[] {
  return ipBytes(address);
}

export function cidrContains(cidr: Cidr, address: Address): boolean {
  return cidrMatcher([cidr])(address);
}

/** Whether an address is in one of these blocks, to be asked often. */
export function cidrMatcher(cidrs: readonly Cidr[]): (address: Address) => boolean {
  // Policy routing names hundreds of pods one by one.
  const single = new Set(cidrs.filter(isOneAddress).map(({ network }) => network));
  const blocks = cidrs
    .filter((cidr) => !isOneAddress(cidr))
    .map(({ network, prefixLength }) => ({ network: addressBytes(network), prefixLength }));
  return (address) => {
    if (blocks.length === 0 || single.has(address)) return single.has(address);
    const bytes = addressBytes(address);
    return blocks.some(({ network, prefixLength }) => {
      return network.length === bytes.length && haveSamePrefix(network, bytes, prefixLength);
    });
  };
}

function isOneAddress({ network, prefixLength }: Cidr): boolean {
  return prefixLength === addressBlock(network).prefixLength;
}

function haveSamePrefix(one: readonly number[], other: readonly number[], prefixLength: number): boolean {
  for (let i = 0, left = prefixLength; left > 0; i++, left -= 8) {
    const mask = 0xff00 >> Math.min(8, left);
    if ((((one[i] as number) ^ (other[i] as number)) & mask) !== 0) return false;
  }
  return true;
}

/** The block of this address alone. */
export function addressBlock(network: Address): Cidr {
  return { network, prefixLength: familyOf(network) === 'IPv4' ? 32 : 128 };
}

/** Ports from `first` to `last`, both included; 1…65535. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** The default of the API server's `--service-node-port-range`. */
export const DEFAULT_NODE_PORTS: PortRange = { first: 30_000, last: 32_767 };
