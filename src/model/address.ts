import { BlockList, isIP, SocketAddress } from 'node:net';

export type IpFamily = 'IPv4' | 'IPv6';

declare const canonical: unique symbol;

/**
 * An IP address in the one spelling that the kernel prints. Only {@link parseAddress} makes it, so a value of this
 * type is safe to put into iptables text and comparable with `===`.
 */
export type Address = string & { readonly [canonical]: 'Address' };

/** `undefined` unless `text` is a plain IPv4 or IPv6 address (no zone, no port, no prefix). */
export function parseAddress(text: string): Address | undefined {
  switch (isIP(text)) {
    case 4:
      return text as Address;
    case 6:
      // A zone ("fe80::1%eth0") passes isIP, yet names an interface of this node: nothing the API server may choose.
      return text.includes('%') ? undefined : (new SocketAddress({ address: text, family: 'ipv6' }).address as Address);
    default:
      return undefined;
  }
}

/** Whether it stands for every address of the machine. */
export function isWildcard(address: string): boolean {
  return address === '0.0.0.0' || address === '::';
}

export function familyOf(address: Address): IpFamily {
  return address.includes(':') ? 'IPv6' : 'IPv4';
}

/** An IPv4-mapped IPv6 address ("::ffff:10.0.0.1") as the IPv4 address it stands for; anything else as it is. */
export function unmapped(address: string): string {
  return address.startsWith('::ffff:') && address.includes('.') ? address.slice('::ffff:'.length) : address;
}

/**
 * The ranges that upstream's `validateNonSpecialIP` refuses (kubernetes `pkg/apis/core/validation`): dialling or
 * capturing them would reach the node itself, its link, or its cloud's metadata service (CVE-2021-25737).
 */
const SPECIAL_RANGES: readonly (readonly [reason: string, network: string, prefix: number, family: 'ipv4' | 'ipv6'])[] =
  [
    ['unspecified', '0.0.0.0', 8, 'ipv4'],
    ['loopback', '127.0.0.0', 8, 'ipv4'],
    ['link-local', '169.254.0.0', 16, 'ipv4'],
    ['multicast', '224.0.0.0', 4, 'ipv4'],
    // Not the rest of 240.0.0.0/4: upstream takes it, the kernel routes it, and there are networks that use it.
    ['broadcast', '255.255.255.255', 32, 'ipv4'],
    ['unspecified', '::', 128, 'ipv6'],
    ['loopback', '::1', 128, 'ipv6'],
    ['IPv4-compatible', '::', 96, 'ipv6'],
    ['IPv4-mapped', '::ffff:0:0', 96, 'ipv6'],
    ['link-local', 'fe80::', 10, 'ipv6'],
    ['multicast', 'ff00::', 8, 'ipv6'],
  ];

const special = SPECIAL_RANGES.map(([reason, network, prefix, family]) => {
  const list = new BlockList();
  list.addSubnet(network, prefix, family);
  return { reason, list, family };
});

/** Why this address may be neither a Service address nor an endpoint ("loopback", "multicast", …), or `undefined`. */
export function specialAddressReason(address: Address): string | undefined {
  const family = familyOf(address) === 'IPv4' ? 'ipv4' : 'ipv6';
  // The family is compared first: BlockList also matches IPv4-mapped forms across families.
  return special.find((range) => range.family === family && range.list.check(address, family))?.reason;
}
