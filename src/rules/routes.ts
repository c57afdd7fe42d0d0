import { type Address, addressBlock, type Cidr, cidrContains, familyOf, type IpFamily } from '../model/address.ts';
import type { EndpointSetName } from '../model/service-port.ts';
import { type EndpointSet, verdictOf } from '../model/service-port.ts';
import type { Portal } from './claims.ts';
import { DROP, REFUSE } from './doors.ts';

/** Where NAT sends a packet: to a listener of the Service port, or through a door. */
export type Target =
  | { readonly kind: 'listener'; readonly port: number; readonly set: EndpointSetName }
  | { readonly kind: 'door'; readonly port: typeof REFUSE | typeof DROP };

/** Where a packet comes from, as far as rules can tell; what is absent may be anything. */
export interface Origin {
  /** The block that its source address is in. */
  readonly source?: Cidr;
  /** The interface that it came in by, as iptables spells it: `cali+` is every one whose name begins like this. */
  readonly inInterface?: string;
}

/** The target of packets from there. */
export interface Route extends Origin {
  readonly target: Target;
}

/** Routes for one kind of destination, of which the first that matches decides; the last matches everything. */
export interface Routes {
  /** For packets of pods and from outside. */
  readonly container: readonly Route[];
  /** For packets of the node's own processes. */
  readonly host: readonly Route[];
}

export interface PortalRoutes {
  readonly clusterIP: Routes;
  /** NodePorts and external IPs. */
  readonly external: Routes;
  /** With the source ranges: they are about load balancer IPs alone, as upstream's are. */
  loadBalancerIP(address: Address): Routes;
}

export interface RouteFacts {
  readonly family: IpFamily;
  /** By what packets of pods are told from those from outside; none when that is not known. Of the family. */
  readonly pods: readonly Origin[];
  readonly nodeAddress: Address;
}

const REFUSED: Target = { kind: 'door', port: REFUSE };
const DROPPED: Target = { kind: 'door', port: DROP };

/** Who is served by which endpoint set (docs/adr/0009), and what becomes of those that are not. */
export function routesOf(portal: Portal, facts: RouteFacts): PortalRoutes {
  const { servicePort } = portal;
  const { local, loadBalancerSourceRanges } = servicePort;
  const own = targetOf(servicePort, 'own', portal.localPort);
  const localSet = local === undefined ? own : targetOf(local, 'local', portal.localSetPort);
  const internal = [{ target: local?.internal ? localSet : own }];
  const pods = facts.pods.map((origin) => ({ ...origin, target: own }));
  const container = local?.external ? simplified([...pods, { target: localSet }]) : [{ target: own }];
  const external = { container, host: [{ target: own }] };
  // Of the other family are none that could be let in: where only such are given, nobody is (docs/adr/0009).
  const ranges = loadBalancerSourceRanges?.filter(({ network }) => familyOf(network) === facts.family);
  return {
    clusterIP: { container: internal, host: internal },
    external,
    loadBalancerIP: (address) => (ranges === undefined ? external : limited(external, ranges, facts, address)),
  };
}

function targetOf(endpoints: EndpointSet, set: EndpointSetName, port: number | undefined): Target {
  const verdict = verdictOf(endpoints);
  if (verdict === 'reject') return REFUSED;
  // Without a listener yet, it is for the client to try again.
  return verdict === 'drop' || port === undefined ? DROPPED : { kind: 'listener', port, set };
}

/**
 * The node's own processes are judged by the address they send from. Where its load balancer IP is an address of the
 * node, they send from that one; then the node's address counts. As upstream `pkg/proxy/iptables/proxier.go`.
 */
function limited(routes: Routes, ranges: readonly Cidr[], { nodeAddress }: RouteFacts, address: Address): Routes {
  const includesNode = ranges.some((range) => cidrContains(range, nodeAddress));
  return {
    container: within(ranges, routes.container),
    host: within(includesNode ? [...ranges, addressBlock(address)] : ranges, routes.host),
  };
}

function within(ranges: readonly Cidr[], routes: readonly Route[]): readonly Route[] {
  const allowed = routes.flatMap((route) =>
    ranges.flatMap((range) => {
      const common = intersection(range, route.source);
      return common === undefined ? [] : [{ ...route, source: common }];
    }),
  );
  return simplified([...allowed, { target: DROPPED }]);
}

/** Two blocks of addresses have nothing in common, or one of them is in the other. */
function intersection(a: Cidr, b: Cidr | undefined): Cidr | undefined {
  if (b === undefined) return a;
  const [outer, inner] = a.prefixLength <= b.prefixLength ? [a, b] : [b, a];
  return cidrContains(outer, inner.network) ? inner : undefined;
}

/** The same without routes that nothing comes to, and without those just before the end that say the same as the last. */
function simplified(routes: readonly Route[]): readonly Route[] {
  const byOrigin = new Map<string, Route>();
  for (const { source, inInterface, target } of routes) {
    const isFromAnywhere = source === undefined || source.prefixLength === 0;
    const origin: Origin = { ...(!isFromAnywhere && { source }), ...(inInterface !== undefined && { inInterface }) };
    const key = `${inInterface ?? ''} ${isFromAnywhere ? '' : `${source.network}/${source.prefixLength}`}`;
    if (!byOrigin.has(key)) byOrigin.set(key, { ...origin, target });
    if (isFromAnywhere && inInterface === undefined) break;
  }
  const [last, ...others] = [...byOrigin.values()].reverse();
  if (last === undefined) return [];
  const firstOther = others.findIndex(({ target }) => !sameTarget(target, last.target));
  return [...(firstOther === -1 ? [] : others.slice(firstOther).reverse()), last];
}

function sameTarget(a: Target, b: Target): boolean {
  return a.kind === b.kind && a.port === b.port;
}
