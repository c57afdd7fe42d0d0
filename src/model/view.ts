import type { Address, IpFamily } from './address.ts';
import type { ConnectionState, Counters } from './data-plane.ts';
import type { Endpoint } from './endpoint.ts';
import type { ServicePortName, ServicePortNameParts } from './service.ts';
import type { EndpointSetName, ProxiedProtocol, ServicePort } from './service-port.ts';
import type { ApiStatus } from './source.ts';

/*
 * What operators see, on the control socket and on the status page alike. Plain values that survive JSON. Rates are per
 * second, times milliseconds since 1970, durations milliseconds.
 */

/** Reads the running program. Nothing here waits for the data path, delays it, or changes anything. */
export interface View {
  node(): Promise<NodeView>;
  /**
   * In the order of their names, IPv4 first. Made one by one, so that a consumer can give way to other work among ten
   * thousand of them. One that comes or goes meanwhile may be missing.
   */
  services(filter?: ServiceFilter): Iterable<ServiceView>;
  /** One of them. */
  service(name: ServicePortName, family: IpFamily, options?: Pick<ServiceFilter, 'summary'>): ServiceView | undefined;
  /** The connections of {@link services}, in small pieces. */
  connections(filter?: ServiceFilter): AsyncIterable<readonly ConnectionView[]>;
  /** Oldest first; the last few hundred. */
  events(): readonly EventView[];
  /** Oldest first; a sample every {@link SAMPLE_MS} of the last fifteen minutes, or since the start. */
  history(): readonly HistorySample[];
  /** What becomes of a connection to this address and port. */
  explain(question: Question): Promise<Explanation>;
}

/** How often traffic is sampled. Rates are of the last such period. */
export const SAMPLE_MS = 5_000;
export const HISTORY_MS = 15 * 60_000;

/** Exact names. An absent one matches every name. */
export interface ServiceFilter {
  readonly namespace?: string;
  /** The Service's, without its namespace and port. */
  readonly service?: string;
  /** Leaves the lists of endpoints empty: they are most of an answer. */
  readonly summary?: boolean;
}

export interface NodeView {
  readonly version: string;
  readonly nodeVersion: string;
  /** The Kubernetes node's name. */
  readonly nodeName: string;
  readonly pid: number;
  readonly startedAt: number;
  readonly now: number;
  readonly engine: 'fast' | 'node';
  /** Threads of the fast engine. */
  readonly workers?: number;
  readonly iptables: string;
  readonly healthy: boolean;
  readonly families: readonly FamilyView[];
  /** Missing when Services come from files. */
  readonly api?: Pick<ApiStatus, 'connected' | 'staleForMs'>;
  /** How late the main thread's event loop was, over the last sample. */
  readonly loopDelayMs: { readonly p50: number; readonly p99: number; readonly max: number };
  readonly memory: { readonly rss: number; readonly heapUsed: number };
  /** `limit` is missing where it is not known. */
  readonly descriptors: { readonly open: number; readonly limit?: number };
  /** Of every listener together. */
  readonly totals: Counters;
  readonly rates: Rates;
  readonly verbosity: number;
  /** Endpoints that an operator has drained, as address:port. */
  readonly drained: readonly string[];
}

/** Beyond this share of the limit, clients may soon have to wait. */
const MANY_DESCRIPTORS = 0.8;

export function hasManyOpen({ open, limit }: NodeView['descriptors']): boolean {
  return limit !== undefined && open > limit * MANY_DESCRIPTORS;
}

/** One address family's rules. */
export interface FamilyView {
  readonly family: IpFamily;
  readonly servicePorts: number;
  /** Services whose changes wait for a sync. */
  readonly pending: number;
  readonly lastSync?: SyncResult;
  /** The last one that succeeded. */
  readonly lastSyncedAt?: number;
}

export interface SyncResult {
  readonly at: number;
  readonly durationMs: number;
  /** Missing when it succeeded. */
  readonly err?: string;
}

export interface Rates {
  readonly connections: number;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  /** Failed dials, and clients that were turned away. */
  readonly failures: number;
}

/**
 * `degraded`: an operator has drained endpoints, or during the last minute dials failed or clients were turned away or
 * had to wait. `empty`: no endpoint may serve, so clients are refused. `pending`: it has no listener yet.
 */
export type ServiceState = 'ok' | 'degraded' | 'empty' | 'pending';

/** One Service port within one address family: what it should be, and how it is. */
export interface ServiceView
  extends Pick<
      ServicePort,
      'name' | 'protocol' | 'port' | 'nodePort' | 'clusterIPs' | 'externalIPs' | 'loadBalancerIPs' | 'affinity'
    >,
    ServicePortNameParts {
  readonly family: IpFamily;
  readonly state: ServiceState;
  /** A clause that says why it is not ok. */
  readonly reason?: string;
  /** Of its listeners together. */
  readonly counters: Counters;
  readonly rates: Rates;
  /** Two where policies need two endpoint sets. */
  readonly listeners: readonly ListenerView[];
}

/**
 * Which connections to a Service port (docs/adr/0009). `internal`: to a cluster IP. `external`: to a NodePort, load
 * balancer IP or external IP. `node`: to one of these from the node itself, where that differs from `external`.
 */
export type Traffic = 'internal' | 'external' | 'node';

export interface ListenerView {
  readonly set: EndpointSetName;
  readonly traffic: readonly Traffic[];
  /** `undefined` until it is open. */
  readonly localPort: number | undefined;
  readonly worker?: number;
  readonly endpoints: readonly EndpointView[];
  /** How many endpoints there are, and how many of them get new connections. Also in a summary. */
  readonly endpointCount: { readonly all: number; readonly active: number };
}

/** `active`: gets new connections. `draining`: keeps those it has. `drained`: the same, by an operator's wish. */
export type EndpointState = 'active' | 'draining' | 'drained';

export interface EndpointView {
  readonly endpoint: Endpoint;
  readonly state: EndpointState;
  /** Missing in an engine that does not count by endpoint. */
  readonly counters?: Counters;
  /** The last failed dial, for some minutes, of a thousand endpoints at most. */
  readonly lastError?: { readonly at: number; readonly err: string };
}

export interface ConnectionView {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  readonly client: Endpoint;
  /** The first cluster IP; by which of the Service's addresses the client came is not known. */
  readonly virtual: Endpoint;
  readonly endpoint?: Endpoint;
  readonly state: ConnectionState;
  readonly expiresMs?: number;
}

/** A line of the log. */
export interface EventView {
  readonly id: number;
  readonly at: number;
  readonly level: 'error' | 'warn' | 'info';
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number | boolean>>;
}

export interface HistorySample extends Rates {
  readonly at: number;
  /** At that moment. */
  readonly active: number;
}

export interface Question {
  readonly address: Address;
  readonly port: number;
  readonly protocol: ProxiedProtocol;
  /** Where the connection would come from, for source ranges and affinity. Absent: this node. */
  readonly client?: Address;
}

/** Answers as far as they are known: the way of a connection, step by step. */
export interface Explanation {
  /** One sentence: "default/web:http takes it; the next connection goes to 10.244.1.7:8080". */
  readonly summary: string;
  /** An endpoint would get it. */
  readonly served: boolean;
  /** The rules that match in the kernel, in the order in which a packet meets them. */
  readonly rules: readonly RuleView[];
  /** Missing when no Service has that address and port, or it is left out. */
  readonly service?: ServiceView;
  /** The listener that the rules lead to. */
  readonly listener?: ListenerView;
  /** Every endpoint that is known for the Service port. */
  readonly candidates: readonly CandidateView[];
  readonly nextPick?: Endpoint;
}

export interface RuleView {
  readonly table: string;
  readonly chain: string;
  /** As iptables prints it, without the `-A CHAIN`. */
  readonly rule: string;
}

export interface CandidateView {
  readonly endpoint: Endpoint;
  readonly nodeName?: string;
  readonly zone?: string;
  /** It gets new connections. */
  readonly chosen: boolean;
  /** Why it does not: "not ready", "on another node, and the policy is Local". */
  readonly reason?: string;
  readonly active?: number;
  readonly lastError?: { readonly at: number; readonly err: string };
}
