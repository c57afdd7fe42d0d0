import { type Address, addressBytes, familyOf, type IpFamily } from '../model/address.ts';

const RTF_UP = 0x0001;
const RTF_REJECT = 0x0200;

interface Route {
  readonly interfaceName: string;
  /** The prefix in binary digits. */
  readonly prefix: string;
  readonly metric: number;
}

/**
 * The usable routes in the text of `/proc/net/route`
 *
 *     Iface  Destination  Gateway   Flags  RefCnt  Use  Metric  Mask      MTU  Window  IRTT
 *     eth0   00000000     0101A8C0  0003   0       0    100     00000000  0    0       0
 *
 * or of `/proc/net/ipv6_route`: destination and prefix length, source and prefix length, next hop, metric, references,
 * use, flags, interface; numbers in hexadecimal, no heading.
 */
function usableRoutes(text: string, family: IpFamily): Route[] {
  return text.split('\n').flatMap((line) => {
    const fields = line.trim().split(/\s+/);
    const found = family === 'IPv4' ? readIPv4(fields) : readIPv6(fields);
    if (found === undefined) return [];
    const { interfaceName, network, length, metric, flags } = found;
    const isUsable = (flags & RTF_UP) !== 0 && (flags & RTF_REJECT) === 0;
    return isUsable ? [{ interfaceName, prefix: bitsOf(Buffer.from(network, 'hex')).slice(0, length), metric }] : [];
  });
}

function readIPv4([interfaceName = '', destination = '', , flags = '', , , metric, mask = '']: readonly string[]) {
  if (!/^[0-9A-F]{8}$/.test(destination) || !/^[0-9A-F]{8}$/.test(mask)) return undefined;
  const length = bitsOf(Buffer.from(reversed(mask), 'hex')).replace(/0+$/, '').length;
  const network = reversed(destination);
  return { interfaceName, network, length, metric: Number(metric), flags: Number.parseInt(flags, 16) };
}

function readIPv6([network = '', length = '', , , , metric = '', , , flags = '', name]: readonly string[]) {
  if (!/^[0-9a-f]{32}$/.test(network) || name === undefined) return undefined;
  const [prefixLength = 0, metricNumber = 0, flagBits = 0] = [length, metric, flags].map((hex) =>
    Number.parseInt(hex, 16),
  );
  return { interfaceName: name, network, length: prefixLength, metric: metricNumber, flags: flagBits };
}

/**
 * The interfaces of the default routes, the preferred (lowest metric) first. `routes`: the text of `/proc/net/route` or
 * `/proc/net/ipv6_route`. Upstream (k8s.io/apimachinery `pkg/util/net/interface.go`) keeps the file's order and ignores
 * mask and metric; but 0.0.0.0/1, as some VPNs install it, is no default route.
 */
export function defaultRouteInterfaces(routes: string, family: IpFamily): string[] {
  return usableRoutes(routes, family)
    .filter(({ prefix }) => prefix === '')
    .toSorted((a, b) => a.metric - b.metric)
    .map(({ interfaceName }) => interfaceName);
}

/**
 * The interface by which packets leave to an address, and by which packets from there most likely arrive: that of the
 * longest prefix, and among these of the lowest metric. `routes`: the text of the address family's file, which holds
 * the main table only; policy rules are ignored. `undefined` without a route.
 */
export function routeInterface(routes: string, address: Address): string | undefined {
  const bits = bitsOf(addressBytes(address));
  const [best] = usableRoutes(routes, familyOf(address))
    .filter(({ prefix }) => bits.startsWith(prefix))
    .toSorted((a, b) => b.prefix.length - a.prefix.length || a.metric - b.metric);
  return best?.interfaceName;
}

/** IPv4 is printed as a number in the machine's byte order, which is little-endian on all supported machines. */
function reversed(hex: string): string {
  return Buffer.from(hex, 'hex').reverse().toString('hex');
}

function bitsOf(bytes: Iterable<number>): string {
  return Array.from(bytes, (byte) => byte.toString(2).padStart(8, '0')).join('');
}
