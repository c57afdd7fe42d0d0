import { rfc3339 } from '../util/timestamp.ts';
import type { Address, IpFamily } from './address.ts';
import type { Counters, OpenConnection } from './data-plane.ts';
import type { Endpoint, SetWeight } from './endpoint.ts';
import type { Finding } from './finding.ts';
import type { SchedulerName } from './scheduler.ts';
import type { PortOptions, ProxyProtocol, ServicePortName, ServicePortNameParts } from './service.ts';
import type { EndpointSetName, ProxiedProtocol, ServicePort } from './service-port.ts';
import type { ApiStatus } from './source.ts';

/*
 * What operators see on the control socket and on the status page: values that survive JSON. Rates are per second,
 * times milliseconds since 1970, durations milliseconds.
 */

/** Reads the running program. Never changes or delays the data path. */
export interface View {
  node(): Promise<NodeView>;
  /** By name, IPv4 first; made one by one, so a consumer can yield. One that comes or goes may be missing. */
  services(filter?: ServiceFilter): Iterable<ServiceView>;
  service(name: ServicePortName, family: IpFamily, options?: Pick<ServiceFilter, 'summary'>): ServiceView | undefined;
  /** The connections of {@link services}, in small pieces. */
  connections(filter?: ServiceFilter): AsyncIterable<readonly ConnectionView[]>;
  /** The last few hundred, oldest first. */
  events(): readonly EventView[];
  /** Samples every {@link SAMPLE_MS}, oldest first. */
  history(): readonly HistorySample[];
  /** What becomes of a connection to this address and port. */
  explain(question: Question): Promise<Explanation>;
}

/** The period of traffic samples. Rates are of the last one. */
export const SAMPLE_MS = 5_000;
export const HISTORY_MS = 15 * 60_000;

/** Exact names. An absent one matches every name. */
export interface ServiceFilter {
  readonly namespace?: string;
  readonly service?: string;
  /** Leaves the lists of endpoints empty. */
  readonly summary?: boolean;
}

export interface NodeView {
  readonly version: string;
  readonly nodeVersion: string;
  readonly nodeName: string;
  readonly pid: number;
  readonly startedAt: number;
  readonly now: number;
  readonly engine: 'fast' | 'node';
  /** Threads of the fast engine. */
  readonly workers?: number;
  /** How packets for Services are captured ("iptables nft", "nft"), and why so. */
  readonly capture: { readonly method: string; readonly why: string };
  /** The flavour of iptables, where that captures. */
  readonly iptables?: string;
  readonly healthy: boolean;
  readonly families: readonly FamilyView[];
  /** The path of the file of `--config`, while it says something else than what this process serves with. */
  readonly configNotInForce?: string;
  /** Where Services come from: "the API server 192.0.2.1:6443", "the files in /etc/services". */
  readonly source: string;
  /** Absent when Services come from files. */
  readonly api?: Pick<ApiStatus, 'connected' | 'staleForMs' | 'err' | 'servers' | 'servedStateOf'>;
  /** Of manifests and the state on disk: what cannot be used or written. At most some twenty; absent: nothing. */
  readonly findings?: readonly Finding[];
  /** Of the main thread, during the last sample. */
  readonly loopDelayMs: { readonly p50: number; readonly p99: number; readonly max: number };
  readonly memory: { readonly rss: number; readonly heapUsed: number };
  readonly descriptors: { readonly open: number; readonly limit?: number };
  /** Of every listener together. */
  readonly totals: Counters;
  /** Absent until one sample has been taken. */
  readonly rates?: Rates;
  readonly verbosity: number;
  /** By an operator, as address:port. */
  readonly drained: readonly string[];
  /** That an operator has set, but for those of drained endpoints. */
  readonly weights: readonly SetWeight[];
}

/** As operators read it, wherever they look. `wallMs`: of `ApiStatus.servedStateOf`. */
export function servingStateOf(wallMs: number): string {
  return `serving the state of ${rfc3339(wallMs)}`;
}

/** Clients may soon have to wait. */
export function hasManyOpen({ open, limit }: NodeView['descriptors']): boolean {
  return limit !== undefined && open > limit * 0.8;
}

/** One address family's rules. */
export interface FamilyView {
  readonly family: IpFamily;
  readonly servicePorts: number;
  /** Services whose changes wait for a sync. */
  readonly pending: number;
  readonly lastSync?: SyncResult;
  /** Of the last success. */
  readonly lastSyncedAt?: number;
}

export interface SyncResult {
  readonly at: number;
  readonly durationMs: number;
  /** Absent when it succeeded. */
  readonly err?: string;
}

/**
 * Of TCP dials that were answered during the last two to four minutes: bounds of which they took at most so many
 * milliseconds ({@link CONNECT_BOUNDS_MS}; the last means longer than the one before), and how many they are.
 */
export interface ConnectTime {
  readonly p50: number;
  readonly p99: number;
  readonly count: number;
}

export interface Rates {
  readonly connections: number;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  /** Failed dials, and refused clients. */
  readonly failures: number;
}

/**
 * `degraded`: it goes without something that it asks for, an operator has drained endpoints, or dials failed or
 * clients were refused or had to wait during the last minute. `down`: each endpoint that gets new connections is
 * failing or ejected, until one answers. `empty`: no endpoint may serve, so clients are refused. `waiting`: clients
 * wait for an endpoint. `pending`: it has no listener yet. `idle`: no endpoint may serve, and clients would wait for
 * one, but none does.
 */
export type ServiceState = (typeof SERVICE_STATES)[number];

/** The worst first. */
export const SERVICE_STATES = ['down', 'empty', 'waiting', 'degraded', 'pending', 'idle', 'ok'] as const;

export const SEVERITY = Object.fromEntries(
  SERVICE_STATES.map((state, index) => [state, SERVICE_STATES.length - 1 - index]),
) as Readonly<Record<ServiceState, number>>;

/** Somebody should look. */
export function isProblem({ state }: Pick<ServiceView, 'state'>): boolean {
  return state !== 'ok' && state !== 'idle';
}

/** How many Service ports are in each state. */
export type StateCounts = Record<ServiceState, number>;

export function noStates(): StateCounts {
  return { down: 0, empty: 0, waiting: 0, degraded: 0, pending: 0, idle: 0, ok: 0 };
}

/** One Service port within one address family, with the addresses and the NodePort at which it is served. */
export interface ServiceView
  extends Pick<
      ServicePort,
      'name' | 'protocol' | 'port' | 'nodePort' | 'clusterIPs' | 'externalIPs' | 'loadBalancerIPs' | 'affinity'
    >,
    Pick<PortOptions, 'slowStartMs' | 'maxConnections'>,
    ServicePortNameParts {
  readonly family: IpFamily;
  /** How its endpoints are chosen. */
  readonly scheduler: SchedulerName;
  /** How long clients wait while no endpoint may serve. Absent: they are refused. */
  readonly waitMs?: number;
  readonly state: ServiceState;
  /** Why it is not ok. */
  readonly reason?: string;
  /** Of its listeners together. */
  readonly counters: Counters;
  /** Absent until one sample of them has been taken. */
  readonly rates?: Rates;
  /** Absent when none was answered. */
  readonly connectTime?: ConnectTime;
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
  /** `active` ones get new connections. Also in a summary. */
  readonly endpointCount: { readonly all: number; readonly active: number };
}

/**
 * `active`: gets new connections. `failing`: too, but its last dial failed, and it has answered nobody since.
 * `ejected`: gets them last, because it has failed too often. `draining`: keeps its connections. `drained`: the same,
 * by an operator.
 */
export type EndpointState = 'active' | 'failing' | 'ejected' | 'draining' | 'drained';

/** Gets new connections, even if last. */
export function isInUse({ state }: Pick<EndpointView, 'state'>): boolean {
  return state !== 'draining' && state !== 'drained';
}

/** A new connection to it can be expected to succeed. */
export function isWell({ state }: Pick<EndpointView, 'state'>): boolean {
  return state === 'active';
}

export interface EndpointView {
  readonly endpoint: Endpoint;
  readonly state: EndpointState;
  /** 0 unless it gets new connections. */
  readonly weight: number;
  /** Absent in an engine that does not count by endpoint. */
  readonly counters?: Counters;
  readonly connectTime?: ConnectTime;
  /** The last failed dial; kept for minutes, for a thousand endpoints at most. */
  readonly lastError?: { readonly at: number; readonly err: string };
}

export interface ConnectionView extends Pick<OpenConnection, 'client' | 'state' | 'expiresMs'> {
  readonly name: ServicePortName;
  readonly protocol: ProxiedProtocol;
  /** The first cluster IP: the address that the client used is unknown. */
  readonly virtual: Endpoint;
  readonly endpoint?: Endpoint;
}

export interface EventView {
  readonly id: number;
  readonly at: number;
  readonly level: 'error' | 'warn' | 'info';
  readonly message: string;
  readonly fields: Readonly<Record<string, string | number | boolean>>;
}

export interface HistorySample extends Rates {
  readonly at: number;
  readonly active: number;
}

export interface Question {
  readonly address: Address;
  readonly port: number;
  readonly protocol: ProxiedProtocol;
  /** Where the connection comes from. Absent: this node. */
  readonly client?: Address;
}

export interface Explanation {
  /** "default/web:http takes it; the next connection goes to 10.244.1.7:8080". */
  readonly summary: string;
  readonly served: boolean;
  /** What the answer does not look at, as a sentence. */
  readonly caveat?: string;
  /** The matching rules in the kernel, in the order in which a packet meets them. */
  readonly rules: readonly RuleView[];
  /** Absent when no Service is served at that address and port. */
  readonly service?: ServiceView;
  readonly listener?: ListenerView;
  readonly candidates: readonly CandidateView[];
  /** Why no endpoint may serve. Absent when one may, or when no Service would get the connection. */
  readonly noEndpoints?: NoEndpoints;
  /** The client would wait for an endpoint, for so long at most. */
  readonly wouldWaitMs?: number;
  readonly nextPick?: Endpoint;
  /** What the next pick will take the client for. */
  readonly endpointSees?: SeenAddress;
  /** The header that it gets first. */
  readonly proxyProtocol?: ProxyProtocol;
}

export interface NoEndpoints {
  /** For programs. */
  readonly reason:
    | 'NoObjects'
    | 'OtherNamespace'
    | 'NoAddresses'
    | 'OtherFamily'
    | 'OtherPort'
    | 'NotReady'
    | 'NoneMayServe';
  /** For people: "its only endpoint is not ready". */
  readonly message: string;
}

/** Whose address an endpoint sees. */
export type SeenAddress =
  | { readonly address: 'client' }
  /** "externalTrafficPolicy is Cluster". */
  | { readonly address: 'node'; readonly reason: string };

export interface RuleView {
  readonly table: string;
  readonly chain: string;
  /** As the tool prints it, without its table and chain. */
  readonly rule: string;
  /** All of it, as that tool has it: to be copied, and found there. */
  readonly line: string;
}

export interface CandidateView extends Pick<EndpointView, 'endpoint' | 'weight' | 'connectTime' | 'lastError'> {
  readonly nodeName?: string;
  readonly zone?: string;
  /** It gets new connections. */
  readonly chosen: boolean;
  /** Why not: "not ready", "on another node, and the policy is Local". */
  readonly reason?: string;
  readonly active?: number;
  /** It gets them last. */
  readonly ejected?: true;
}

/** What operators may change while the program runs. */
export interface Operations {
  /** klog's verbosity, until the program restarts. */
  setVerbosity(verbosity: number): void;
  /** What {@link setWeight} has set. */
  weightOf(endpoint: Endpoint): number | undefined;
  /**
   * The endpoint's weight on this node, in every Service; with 0 it gets no new connections, and established ones
   * continue. Lasts until it is set to `undefined`, also across a hand-over, but not a restart. The endpoint may be
   * unknown. `false` when too many are set.
   */
  setWeight(endpoint: Endpoint, weight: number | undefined): boolean;
  /** Takes back a weight of 0: what was set before counts again. Whether it was 0. */
  undrain(endpoint: Endpoint): boolean;
}
