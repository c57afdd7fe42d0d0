import type { Found } from '../util/found.ts';
import type { Address, Cidr, IpFamily } from './address.ts';
import type { ClientAddress } from './client-address.ts';
import type { SchedulerName } from './scheduler.ts';

export type Protocol = 'TCP' | 'UDP' | 'SCTP';

/** `namespace/name` of a Service or slice. Both are validated DNS names, so the key never needs quoting. */
export type ServiceKey = `${string}/${string}`;

/**
 * As upstream prints its ServicePortName in logs, metrics and rule comments: `namespace/name` for an unnamed port,
 * else `namespace/name:port`.
 */
export type ServicePortName = ServiceKey | `${ServiceKey}:${string}`;

export type SessionAffinity =
  | { readonly type: 'None' }
  | {
      readonly type: 'ClientIP';
      /** Since the client's last new connection. */
      readonly timeoutSeconds: number;
    };

export type TrafficPolicy = 'Cluster' | 'Local';

/** One entry of a Service's `spec.ports`. */
export interface ServicePortSpec {
  /** Empty for the single unnamed port. */
  readonly name: string;
  readonly protocol: Protocol;
  /** 1…65535 */
  readonly port: number;
  /** 0 when the Service has none. */
  readonly nodePort: number;
  /** In a manifest, a number that its author wrote. The proxy takes the port from the endpoints. */
  readonly targetPort?: number;
}

export type ProxyProtocol = 'v1' | 'v2';

/** What annotations ask of the data plane, as they say it. What is absent is the node's default. */
export interface PortOptions {
  /** TCP only: the header that is sent first to an endpoint. */
  readonly proxyProtocol?: ProxyProtocol;
  /** UDP only: the silence after which another endpoint gets the first datagrams of a flow, too. Absent: never. */
  readonly udpReplayMs?: number;
  /** How long the share of a new endpoint grows. Absent: it has its whole share at once. */
  readonly slowStartMs?: number;
  /** Connections and flows that one endpoint gets from this node. Absent: as many as come. */
  readonly maxConnections?: number;
  /** TCP only: a connection is ended at about this age. Absent: at none. */
  readonly maxConnectionAgeMs?: number;
  /** TCP only: how long connections outlive an endpoint that is gone for good; 0: no limit. */
  readonly drainTimeoutMs?: number;
  /** UDP only: silence that ends a flow after a reply. */
  readonly udpTimeoutMs?: number;
}

const PORT_OPTIONS: { readonly [O in keyof PortOptions]-?: 'TCP' | 'UDP' | 'both' } = {
  proxyProtocol: 'TCP',
  udpReplayMs: 'UDP',
  slowStartMs: 'both',
  maxConnections: 'both',
  maxConnectionAgeMs: 'TCP',
  drainTimeoutMs: 'TCP',
  udpTimeoutMs: 'UDP',
};

/** Those of the options that have an effect on a port of this protocol. */
export function portOptions(options: PortOptions, protocol: Protocol): PortOptions {
  const applies = ([name, value]: [string, unknown]) => {
    const effect = PORT_OPTIONS[name as keyof PortOptions];
    return value !== undefined && (effect === 'both' || effect === protocol);
  };
  return Object.fromEntries(Object.entries(options).filter(applies));
}

/** What a Service's annotations ask for (`kube-userspace-proxy/…`). What is absent is the node's default. */
export interface ServiceOptions extends PortOptions {
  readonly clientAddress?: ClientAddress;
  readonly scheduler?: SchedulerName;
  /** How long clients wait while no endpoint can be used; 0: they are refused. */
  readonly waitForEndpointsMs?: number;
  /** The Service was scaled to zero, and something scales it up again when a client comes (`…/idled-at`). */
  readonly isIdled?: true;
  /** Clients that wait at one Service port at once. */
  readonly maxWaiting?: number;
  /** How long clients wait while all endpoints have as many as `maxConnections`. */
  readonly queueTimeoutMs?: number;
  /** Annotations that ask for something that there is not, so that the default holds. `what`: the annotation. */
  readonly refused?: readonly ({ readonly what: string } & Found)[];
}

/** The validated fields that a node proxy needs. */
export interface Service {
  readonly key: ServiceKey;
  /** Absent in a manifest. */
  readonly uid?: string;
  readonly clusterIPs: readonly Address[];
  /** Of a Service that was written without cluster IPs: where it is served. Absent: the families of its cluster IPs. */
  readonly families?: readonly IpFamily[];
  readonly externalIPs: readonly Address[];
  /** Without those that the load balancer answers on itself (`ipMode: Proxy`). */
  readonly loadBalancerIPs: readonly Address[];
  readonly ports: readonly ServicePortSpec[];
  readonly affinity: SessionAffinity;
  /** Absent: its annotations ask for nothing. */
  readonly options?: ServiceOptions;
  /** For traffic to cluster IPs. Absent: Cluster. */
  readonly internalTrafficPolicy?: TrafficPolicy;
  /** For traffic to NodePorts, load balancer IPs and external IPs. Absent: Cluster. */
  readonly externalTrafficPolicy?: TrafficPolicy;
  /** The clients that may use the load balancer IPs. Absent: everyone. Empty (no range could be read): nobody. */
  readonly loadBalancerSourceRanges?: readonly Cidr[];
  /** Where the load balancer checks whether this node has endpoints. Absent: no health checks. */
  readonly healthCheckNodePort?: number;
}

export interface ServicePortNameParts {
  readonly namespace: string;
  readonly service: string;
  /** Empty for the unnamed port. */
  readonly portName: string;
}

/** The inverse of {@link servicePortName}. */
export function partsOf(name: ServicePortName): ServicePortNameParts {
  const slash = name.indexOf('/');
  const colon = name.indexOf(':', slash);
  const end = colon < 0 ? name.length : colon;
  return { namespace: name.slice(0, slash), service: name.slice(slash + 1, end), portName: name.slice(end + 1) };
}

export function servicePortName(service: ServiceKey, port: string): ServicePortName {
  return port === '' ? service : `${service}:${port}`;
}
