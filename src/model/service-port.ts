import type { Address, Cidr, IpFamily } from './address.ts';
import type { Endpoint } from './endpoint.ts';
import type { Protocol, ServiceKey, ServicePortName, SessionAffinity } from './service.ts';

/** What a user-space proxy can carry. SCTP is not (upstream `pkg/proxy/userspace/proxysocket.go`). */
export type ProxiedProtocol = Exclude<Protocol, 'SCTP'>;

/** The endpoints that one listener spreads its clients over, and what becomes of those that it had before. */
export interface EndpointSet {
  /** Candidates for new connections, without duplicates, in a stable order that carries no meaning. */
  readonly endpoints: readonly Endpoint[];
  /**
   * Those that exist but get no new connections: terminating, not ready, or passed over by policy or topology. What is
   * established goes on. An endpoint in neither list is gone for good. Absent when there are none.
   */
  readonly draining?: readonly Endpoint[];
  /** There are no endpoints here only because those that can serve are on other nodes, where policy forbids to go. */
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
 * The snapshot of one Service port, joined with its endpoints. Frozen: a change makes a new one, so whoever holds a
 * reference sees a consistent whole.
 *
 * The endpoint set that it is itself takes all traffic that {@link local} does not take (docs/adr/0009).
 */
export interface ServicePort extends EndpointSet {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  readonly port: number;
  /** 0 when there is none. */
  readonly nodePort: number;
  /** Where load balancers ask after the Service; absent where there is none, and on all but one of its Service ports. */
  readonly healthCheckNodePort?: number;
  readonly clusterIPs: readonly Address[];
  readonly externalIPs: readonly Address[];
  readonly loadBalancerIPs: readonly Address[];
  /** Who may use the load balancer IPs. Absent: everyone. Empty: nobody. */
  readonly loadBalancerSourceRanges?: readonly Cidr[];
  readonly affinity: SessionAffinity;
  /**
   * Addresses of this node at which an endpoint has the NodePort's own number: what comes in for that address and port
   * is for the endpoint itself (docs/adr/0019). Absent when there are none.
   */
  readonly namedEndpoints?: readonly Address[];
  /**
   * A second listener's endpoints. There when one part of the traffic has the policy Local and another does not: it
   * comes and goes with the Service's definition, never with its endpoints.
   */
  readonly local?: LocalEndpointSet;
}

/**
 * What rules do with the traffic of a set. Without endpoints anywhere clients learn at once that nobody is there
 * (`reject`); with endpoints on other nodes only, a load balancer is to try another node and a retry may succeed, so
 * packets vanish (`drop`). As upstream `pkg/proxy/iptables/proxier.go`.
 */
export function verdictOf(set: EndpointSet): 'proxy' | 'reject' | 'drop' {
  if (set.endpoints.length > 0) return 'proxy';
  return set.onlyElsewhere ? 'drop' : 'reject';
}

/** What changed since the last snapshot was taken: consumers keep their own view and do work only for these. */
export interface SnapshotDelta {
  readonly upserted: readonly ServicePort[];
  readonly removed: readonly ServicePortName[];
  /** Service ports that cannot be carried, each told once for as long as it is so. */
  readonly unserved: readonly UnservedPort[];
  /** Parts of Service ports that are left out, each told once for as long as it is so. The rest is served. */
  readonly refused: readonly RefusedPart[];
  /** Health checks that are new or have another answer; `undefined` for a Service that has none any more. */
  readonly healthChecks: ReadonlyMap<ServiceKey, HealthCheck | undefined>;
  /** When the endpoint changes that are in here were triggered, as far as their controller says: milliseconds since 1970. */
  readonly triggeredAt: readonly number[];
}

export interface UnservedPort {
  readonly name: ServicePortName;
  /** A clause for the log, such as "SCTP is not supported in user space". */
  readonly reason: string;
  /** The Service's, where it has one. */
  readonly uid?: string;
}

export interface RefusedPart {
  readonly name: ServicePortName;
  /** "endpoint 10.96.0.1:80", "external IP 192.0.2.1:22", or several of a kind; never long. */
  readonly what: string;
  /** A clause for the log, such as "it is an address of a Service, so connections would come back to the proxy". */
  readonly reason: string;
}

/** What a load balancer is told on the Service's health check node port. */
export interface HealthCheck {
  readonly port: number;
  /** How many ready endpoints of the Service are on this node; several ports of one address count once. */
  readonly localEndpoints: number;
}

/** The two endpoint sets of a Service port: that which it is itself, and `local`. */
export type EndpointSetName = 'own' | 'local';

/**
 * Tells the listeners of one Service port apart, of which there is one for each address family and endpoint set. Names hold
 * one `/` only, so no id is that of another one.
 */
export type ListenerId =
  | ServicePortName
  | `${ServicePortName}/local`
  | `${ServicePortName}/IPv6`
  | `${ServicePortName}/IPv6/local`;

export function listenerId(name: ServicePortName, family: IpFamily, set: EndpointSetName): ListenerId {
  const ofFamily = family === 'IPv4' ? name : (`${name}/IPv6` as const);
  return set === 'own' ? ofFamily : `${ofFamily}/local`;
}

/** A Service port and the listeners that carry it, one for each of its endpoint sets. */
export interface CarriedPort {
  readonly servicePort: ServicePort;
  readonly listeners: readonly {
    readonly id: ListenerId;
    readonly set: EndpointSetName;
    /** `undefined` until it is open. */
    readonly localPort: number | undefined;
  }[];
}
