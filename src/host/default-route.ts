const RTF_UP = 0x0001;
const RTF_REJECT = 0x0200;

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
  const routes = [];
  for (const line of procNetRoute.split('\n').slice(1)) {
    const [name, destination, , flagsHex = '', , , metric, mask] = line.trim().split(/\s+/);
    const flags = Number.parseInt(flagsHex, 16);
    const usable = (flags & RTF_UP) !== 0 && (flags & RTF_REJECT) === 0;
    if (name === undefined || destination !== '00000000' || mask !== '00000000' || !usable) continue;
    routes.push({ name, metric: Number(metric) });
  }
  return routes.sort((a, b) => a.metric - b.metric).map((route) => route.name);
}
