import type { Found } from '../util/found.ts';
import type { Address, Cidr, IpFamily } from './address.ts';
import type { NamedEndpoint, WeightedEndpoint } from './endpoint.ts';
import type { Protocol, Service, ServiceKey, ServicePortName } from './service.ts';

/** The protocols that a user-space proxy supports; not SCTP (upstream `pkg/proxy/userspace/proxysocket.go`). */
export type ProxiedProtocol = Exclude<Protocol, 'SCTP'>;

/** The endpoints of one listener. */
export interface EndpointSet {
  /** They get new connections. Without duplicates, in a stable order that carries no meaning. */
  readonly endpoints: readonly WeightedEndpoint[];
  /**
   * They get no new connections: terminating, not ready, of weight 0, or excluded by policy or topology. Established
   * connections continue. An endpoint in neither list is gone for good. Absent when there are none.
   */
  readonly draining?: readonly NamedEndpoint[];
  /** Set when `endpoints` is empty only because policy excludes the nodes of all endpoints that can serve. */
  readonly onlyElsewhere?: true;
}

/** The node's own endpoints, for the traffic whose policy is Local. */
export interface LocalEndpointSet extends EndpointSet {
  /** Traffic to cluster IPs comes here. */
  readonly internal: boolean;
  /** Traffic from outside the cluster to the NodePort, load balancer IPs and external IPs comes here. */
  readonly external: boolean;
}

/**
 * The frozen snapshot of one Service port and its endpoints. It is itself the endpoint set for all traffic that
 * {@link local} does not take (docs/adr/0009).
 */
export interface ServicePort
  extends EndpointSet,
    Pick<
      Service,
      'clusterIPs' | 'externalIPs' | 'loadBalancerIPs' | 'loadBalancerSourceRanges' | 'affinity' | 'options'
    > {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  readonly port: number;
  /** 0 when there is none. */
  readonly nodePort: number;
  /** Only one Service port of a Service has it. */
  readonly healthCheckNodePort?: number;
  /** How long clients wait while no endpoint can be used. Absent: they are refused. */
  readonly waitMs?: number;
  /**
   * Addresses of this node at which an endpoint has the NodePort's own number: packets to them are for the endpoint
   * itself (docs/adr/0019). Absent when there are none.
   */
  readonly namedEndpoints?: readonly Address[];
  /** Those of {@link namedEndpoints} that are left to the node's own firewall. Absent when there are none. */
  readonly closedEndpoints?: readonly Address[];
  /**
   * The endpoints of a second listener, present when one part of the traffic has the policy Local and another does not.
   * It depends on the Service's definition, never on its endpoints.
   */
  readonly local?: LocalEndpointSet;
}

/** In any of its sets. */
export function hasEndpoints({ endpoints, local }: Pick<ServicePort, 'endpoints' | 'local'>): boolean {
  return endpoints.length > 0 || (local?.endpoints.length ?? 0) > 0;
}

export type Verdict = 'proxy' | 'reject' | 'drop';

/**
 * What rules do with the traffic of a set, as upstream `pkg/proxy/iptables/proxier.go`. `reject`: there are no
 * endpoints anywhere. `drop`: only other nodes have endpoints, so a load balancer should try another node. Clients who
 * may wait come to the listener in both cases, so that endpoints come and go without a change of the rules.
 */
export function verdictOf(
  { waitMs, local, ...own }: Pick<ServicePort, keyof EndpointSet | 'waitMs' | 'local'>,
  set: EndpointSetName,
): Verdict {
  const { endpoints, onlyElsewhere } = set === 'local' && local !== undefined ? local : own;
  if (endpoints.length > 0 || waitMs !== undefined) return 'proxy';
  return onlyElsewhere ? 'drop' : 'reject';
}

/**
 * Strongest first: decides between Service ports that claim the same address and port. The API server assigns
 * ClusterIPs and a controller load balancer IPs. Any user may write an external IP (CVE-2020-8554).
 */
export const DESTINATION_KINDS = ['ClusterIP', 'load-balancer IP', 'external IP', 'NodePort'] as const;

/** The endpoint set that serves each kind of clients (docs/adr/0009). */
export interface ClientSets {
  readonly node: EndpointSetName;
  readonly pods: EndpointSetName;
  /** Includes pods where they cannot be distinguished. */
  readonly others: EndpointSetName;
}

export interface Destination {
  readonly kind: (typeof DESTINATION_KINDS)[number];
  /** Absent for a NodePort: every NodePort address of this node. */
  readonly address?: Address;
  readonly port: number;
  readonly sets: ClientSets;
  /** The only clients that are accepted. Absent: everyone. */
  readonly sourceRanges?: readonly Cidr[];
}

/** The endpoint sets of traffic to cluster IPs (`internal`), and to all other destinations (`external`). */
export function clientSets({ local }: ServicePort): { readonly internal: ClientSets; readonly external: ClientSets } {
  const internal = local?.internal ? 'local' : 'own';
  return {
    internal: { node: internal, pods: internal, others: internal },
    external: { node: 'own', pods: 'own', others: local?.external ? 'local' : 'own' },
  };
}

/** Where a Service port answers, the strongest claim first, in all address families. */
export function destinations(servicePort: ServicePort): readonly Destination[] {
  const { clusterIPs, loadBalancerIPs, externalIPs, port, nodePort, loadBalancerSourceRanges } = servicePort;
  const { internal, external } = clientSets(servicePort);
  const balanced = { sets: external, ...(loadBalancerSourceRanges && { sourceRanges: loadBalancerSourceRanges }) };
  return [
    ...clusterIPs.map((address) => ({ kind: 'ClusterIP', address, port, sets: internal }) as const),
    ...loadBalancerIPs.map((address) => ({ kind: 'load-balancer IP', address, port, ...balanced }) as const),
    ...externalIPs.map((address) => ({ kind: 'external IP', address, port, sets: external }) as const),
    ...(nodePort === 0 ? [] : [{ kind: 'NodePort', port: nodePort, sets: external } as const]),
  ];
}

/** Why a Service port goes without a destination that another one has. */
export function heldBy(holder: string): Found {
  return { found: `${holder} has it`, advice: 'give one of the two another address or NodePort' };
}

/** What changed since the last delta. */
export interface SnapshotDelta {
  readonly upserted: readonly ServicePort[];
  readonly removed: readonly ServicePortName[];
  /** Each is reported once while it cannot be served. */
  readonly unserved: readonly UnservedPort[];
  /** Parts that are left out, each reported once while that lasts. */
  readonly refused: readonly RefusedPart[];
  /** Services that met a defect and keep their last state: the stack, once for each error; `undefined` when over. */
  readonly failed: ReadonlyMap<ServiceKey, string | undefined>;
  /** `undefined` for a Service that no longer has one. */
  readonly healthChecks: ReadonlyMap<ServiceKey, HealthCheck | undefined>;
  /** When endpoint changes were triggered, where known: milliseconds since 1970. */
  readonly triggeredAt: readonly number[];
}

/** One for all ports of a Service that are not served for the same reason. */
export interface UnservedPort extends Found {
  /** The first of them. */
  readonly name: ServicePortName;
  /** How many more there are. Absent: none. */
  readonly more?: number;
  readonly uid?: string;
}

export interface RefusedPart extends Found {
  /** Or the key of the Service, for a part of all its ports. */
  readonly name: ServicePortName;
  /** "endpoint 10.96.0.1:80", "external IP 192.0.2.1:22", or several of a kind; bounded. */
  readonly what: string;
  /** Of the Service, where an event should tell its owner. */
  readonly uid?: string;
}

/** The answer to a load balancer on the Service's health check node port. */
export interface HealthCheck {
  readonly port: number;
  /** Addresses of this node with a ready endpoint. */
  readonly localEndpoints: number;
}

/** The two endpoint sets of a Service port: itself, and its `local`. */
export type EndpointSetName = 'own' | 'local';

/** One for each Service port, address family and endpoint set. Names hold one `/` only, so ids are unique. */
export type ListenerId =
  | ServicePortName
  | `${ServicePortName}/local`
  | `${ServicePortName}/IPv6`
  | `${ServicePortName}/IPv6/local`;

export function listenerId(name: ServicePortName, family: IpFamily, set: EndpointSetName): ListenerId {
  const ofFamily = family === 'IPv4' ? name : (`${name}/IPv6` as const);
  return set === 'own' ? ofFamily : `${ofFamily}/local`;
}

/** A Service port and its listeners, one for each of its endpoint sets. */
export interface CarriedPort {
  readonly servicePort: ServicePort;
  readonly listeners: readonly {
    readonly id: ListenerId;
    readonly set: EndpointSetName;
    /** `undefined` until it is open. */
    readonly localPort: number | undefined;
    /** Why the last try to open it failed. */
    readonly failure?: string;
  }[];
}

/** Why one of its listeners is not open; `undefined`: all are. */
export function whyNotOpen({ listeners }: CarriedPort): string | undefined {
  const missing = listeners.filter(({ localPort }) => localPort === undefined);
  if (missing.length === 0) return undefined;
  return missing.find(({ failure }) => failure !== undefined)?.failure ?? 'its listener is not open yet';
}
