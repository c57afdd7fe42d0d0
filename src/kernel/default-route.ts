const RTF_UP = 0x0001;
const RTF_REJECT = 0x0200;

const ANY_IPV6 = '0'.repeat(32);

interface DefaultRoute {
  readonly name: string;
  readonly metric: number;
}

/**
 * The interfaces that IPv4 default routes leave by, the preferred (lowest metric) first, from the text of
 * `/proc/net/route`:
 *
 *     Iface  Destination  Gateway   Flags  RefCnt  Use  Metric  Mask      MTU  Window  IRTT
 *     eth0   00000000     0101A8C0  0003   0       0    100     00000000  0    0       0
 *
 * Upstream (k8s.io/apimachinery `pkg/util/net/interface.go`) takes them in the file's order and looks at neither mask
 * nor metric; 0.0.0.0/1, as some VPNs install it, is no default route.
 */
export function defaultRouteInterfaces(procNetRoute: string): string[] {
  const routes: DefaultRoute[] = [];
  for (const line of procNetRoute.split('\n').slice(1)) {
    const [name, destination, , flagsHex = '', , , metric, mask] = line.trim().split(/\s+/);
    if (name === undefined || destination !== '00000000' || mask !== '00000000' || !isUsable(flagsHex)) continue;
    routes.push({ name, metric: Number(metric) });
  }
  return byMetric(routes);
}

/**
 * The same for IPv6, from the text of `/proc/net/ipv6_route`: destination and prefix length, source and prefix length,
 * next hop, metric, references, use, flags, interface; numbers in hexadecimal, no heading.
 */
export function defaultRouteInterfaces6(procNetIpv6Route: string): string[] {
  const routes: DefaultRoute[] = [];
  for (const line of procNetIpv6Route.split('\n')) {
    const [destination, prefix, , , , metric = '', , , flagsHex = '', name] = line.trim().split(/\s+/);
    if (name === undefined || destination !== ANY_IPV6 || prefix !== '00' || !isUsable(flagsHex)) continue;
    routes.push({ name, metric: Number.parseInt(metric, 16) });
  }
  return byMetric(routes);
}

function isUsable(flagsHex: string): boolean {
  const flags = Number.parseInt(flagsHex, 16);
  return (flags & RTF_UP) !== 0 && (flags & RTF_REJECT) === 0;
}

function byMetric(routes: readonly DefaultRoute[]): string[] {
  return routes.toSorted((a, b) => a.metric - b.metric).map(({ name }) => name);
}
