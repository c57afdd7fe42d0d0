import { type Address, familyOf } from '../model/address.ts';
import type { NodeFacts, Origin, Portal, ServedSet } from '../model/capture.ts';
import { endpointName } from '../model/endpoint.ts';
import type { ServicePortName } from '../model/service.ts';
import {
  DESTINATION_KINDS,
  type Destination,
  destinations,
  type EndpointSetName,
  type ProxiedProtocol,
} from '../model/service-port.ts';
import { localPortsOf } from './portal.ts';
import { routesTo } from './routes.ts';

/** What becomes of a packet: a listener gets it, or nobody does (`verdictOf`). */
export type Target =
  | { readonly kind: 'listener'; readonly port: number; readonly set: EndpointSetName }
  | { readonly kind: 'reject' | 'drop' };

export interface Route extends Origin {
  readonly target: Target;
}

/** Routes to one destination. The first that matches decides; the last one matches everything. */
export interface Routes {
  /** For packets from pods and from outside. */
  readonly container: readonly Route[];
  /** For packets from the node's own processes. No route of them has an interface. */
  readonly host: readonly Route[];
}

/** Strongest first. */
export const CLAIM_KINDS = [...DESTINATION_KINDS, 'health check', 'local port'] as const;

interface Ranked {
  /** Decides between Service ports that claim the same. */
  readonly kind: (typeof CLAIM_KINDS)[number];
  readonly owner: ServicePortName;
  /** Among the claims of its owner. */
  readonly index: number;
  /** What only one Service port can have: "10.96.0.1:443/TCP", "NodePort 30080/TCP". */
  readonly what: string;
}

/** To an address of a Service. */
export interface AddressClaim extends Ranked {
  readonly kind: 'ClusterIP' | 'load-balancer IP' | 'external IP';
  readonly address: Address;
  readonly protocol: ProxiedProtocol;
  readonly port: number;
  readonly routes: Routes;
}

/** To the NodePort addresses of this node. */
export interface NodePortClaim extends Ranked {
  readonly kind: 'NodePort';
  readonly protocol: ProxiedProtocol;
  readonly port: number;
  readonly routes: Routes;
  /** Packets to these addresses are left alone: they are for an endpoint with the NodePort's number (docs/adr/0019). */
  readonly spared: readonly Address[];
  /** Those of `spared` that must pass the node's firewall. */
  readonly letIn: readonly Address[];
}

/** New TCP connections to it must pass the node's firewall. */
interface HealthCheckClaim extends Ranked {
  readonly kind: 'health check';
  readonly port: number;
}

/**
 * A listener's port. What NAT sends there must pass the node's firewall. Other packets from outside of the node that
 * come to it, at the addresses of the listeners, are rejected; processes of the node may use it.
 */
interface LocalPortClaim extends Ranked, ServedSet {
  readonly kind: 'local port';
  readonly protocol: ProxiedProtocol;
  readonly port: number;
}

/** What a Service port wants of the kernel and only one may have. Immutable. */
export type Claim = AddressClaim | NodePortClaim | HealthCheckClaim | LocalPortClaim;

/** The {@link Claim.what} of a destination. */
export function claimName({ address, port }: Pick<Destination, 'address' | 'port'>, protocol: ProxiedProtocol): string {
  // Joined, as a text from a template keeps its parts, and there are thousands.
  return [address === undefined ? `NodePort ${port}` : endpointName({ address, port }), protocol].join('/');
}

/** Everything that a Service port wants on this node, within one family: the policy, whatever the method. */
export function claimsOf(portal: Portal, node: NodeFacts): readonly Claim[] {
  const { servicePort } = portal;
  const { name: owner, protocol, healthCheckNodePort, namedEndpoints = [], closedEndpoints = [] } = servicePort;
  const claims: Claim[] = [];
  for (const destination of destinations(servicePort)) {
    const { kind, address, port } = destination;
    if (address !== undefined && familyOf(address) !== node.family) continue;
    const [index, what] = [claims.length, claimName(destination, protocol)];
    const routes = routesTo(destination, portal, node);
    if (kind !== 'NodePort' && address !== undefined) {
      claims.push({ kind, owner, index, what, address, protocol, port, routes });
    } else if (kind === 'NodePort') {
      const letIn = namedEndpoints.filter((each) => !closedEndpoints.includes(each));
      claims.push({ kind, owner, index, what, protocol, port, routes, spared: namedEndpoints, letIn });
    }
  }
  if (healthCheckNodePort !== undefined) {
    const what = `health check node port ${healthCheckNodePort}`;
    claims.push({ kind: 'health check', owner, index: claims.length, what, port: healthCheckNodePort });
  }
  for (const { port, set } of localPortsOf(portal)) {
    const what = ['local port ', port, '/', protocol].join('');
    claims.push({ kind: 'local port', owner, index: claims.length, what, name: owner, protocol, port, set });
  }
  return claims;
}
