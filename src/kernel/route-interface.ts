import { type Address, addressBytes, familyOf, type IpFamily } from '../model/address.ts';

const RTF_UP = 0x0001;
const RTF_REJECT = 0x0200;

/** One line of the table. */
interface Route {
  readonly name: string;
  /** In hexadecimal, network order. */
  readonly network: string;
  readonly prefixLength: number;
  readonly metric: number;
}

/**
 * The interface by which packets leave to an address, and by which those from there most likely come in: of the longest prefix, and of those the lowest metric. `routes`: the
 * text of `/proc/net/route`, or of `/proc/net/ipv6_route` (see default-route.ts), which is the main table; rules that
 * choose another are not looked at. `undefined` without a route.
 */
export function routeInterface(routes: string, address: Address): string | undefined {
  const bits = addressBytes(address)
    .map((byte) => byte.toString(2).padStart(8, '0'))
    .join('');
  const read = READERS[familyOf(address)];
  const matching = routes.split('\n').flatMap((line) => {
    const route = read(line.trim().split(/\s+/));
    const isMeant = route !== undefined && bits.startsWith(bitsOf(route.network).slice(0, route.prefixLength));
    return isMeant ? [route] : [];
  });
  const [best] = matching.toSorted((a, b) => b.prefixLength - a.prefixLength || a.metric - b.metric);
  return best?.name;
}

const READERS: Readonly<Record<IpFamily, (fields: readonly string[]) => Route | undefined>> = {
  IPv4: ([name = '', destination = '', , flags = '', , , metric, mask = '']) => {
    if (!/^[0-9A-F]{8}$/.test(destination) || !/^[0-9A-F]{8}$/.test(mask) || !isUsable(flags)) return undefined;
    const prefixLength = bitsOf(reversed(mask)).replace(/0+$/, '').length;
    return { name, network: reversed(destination), prefixLength, metric: Number(metric) };
  },
  IPv6: ([network = '', prefix = '', , , , metric = '', , , flags = '', name = '']) => {
    if (!/^[0-9a-f]{32}$/.test(network) || !isUsable(flags)) return undefined;
    return { name, network, prefixLength: Number.parseInt(prefix, 16), metric: Number.parseInt(metric, 16) };
  },
};

function isUsable(flagsHex: string): boolean {
  const flags = Number.parseInt(flagsHex, 16);
  return (flags & RTF_UP) !== 0 && (flags & RTF_REJECT) === 0;
}

/** IPv4 is printed as a number of the machine, whose bytes are in the other order on all that we run on. */
function reversed(hex: string): string {
  return (hex.match(/../g) ?? []).reverse().join('');
}

function bitsOf(hex: string): string {
  return [...hex].map((digit) => Number.parseInt(digit, 16).toString(2).padStart(4, '0')).join('');
}
