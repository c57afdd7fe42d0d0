import type { Address, IpFamily } from './address.ts';
import type { ClientFacts, KeptAddresses } from './client-address.ts';
import type { ConnectionLogSink } from './connection-log.ts';
import type { Endpoint, NamedEndpoint } from './endpoint.ts';
import type { HandOver } from './hand-over.ts';
import type { SchedulerName } from './scheduler.ts';
import type { PortOptions, ServicePortName, SessionAffinity } from './service.ts';
import type { EndpointSet, ListenerId, ProxiedProtocol } from './service-port.ts';

/** What everybody says of a listener. */
export interface ListenerName {
  readonly id: ListenerId;
  /** For display; several listeners may have the same name. */
  readonly name: ServicePortName;
  readonly family: IpFamily;
  readonly protocol: ProxiedProtocol;
}

/** Where to listen for one Service port. It keeps its listener for as long as this does not change. */
export interface ListenSpec extends ListenerName {
  /** Of the family: `0.0.0.0`, `::`, or one address of the node. `::` takes no IPv4 clients. */
  readonly address: string;
  /** 0 lets the kernel choose. */
  readonly port: number;
}

/** What the picker of one listener chooses from. Answers of a draining endpoint's UDP flows still arrive. */
export interface Backends extends Pick<EndpointSet, 'endpoints' | 'draining'>, PortOptions {
  readonly affinity: SessionAffinity;
  /** Absent: `rr`. */
  readonly scheduler?: SchedulerName;
  /** Absent: endpoints see this node's address. */
  readonly keptAddresses?: KeptAddresses;
  /** For clients who have no endpoint now. Absent: they are refused. */
  readonly waiting?: WaitingTerms;
}

/** How long clients of one Service port wait, and how many of them. */
export interface WaitingTerms {
  /** While no endpoint can be used; 0: they are refused. */
  readonly forEndpointsMs: number;
  /** While every endpoint has as many connections as it may have. */
  readonly whileFullMs: number;
  /** The next one is refused. */
  readonly max: number;
}

/**
 * The data path: listeners, picking, dialling, copying, UDP flows. It owns the state of each picker (docs/adr/0001).
 * Every implementation passes `test/compliance/data-plane.ts`.
 */
export interface DataPlane {
  /** Resolves with the local port, or rejects with {@link ListenError}. The id must not be open already. */
  open(spec: ListenSpec, backends: Backends): Promise<number>;
  /**
   * Takes effect for the next connection or flow. A UDP flow of a draining endpoint still delivers answers, but the
   * client's next datagram begins another flow, so no client keeps an endpoint for ever. UDP flows of endpoints in
   * neither list end at once. Their TCP connections are reset after `endpointDrainTimeoutMs`, unless the endpoint comes
   * back before. Ignored for an id that is not open.
   */
  update(id: ListenerId, backends: Backends): void;
  /** Until the first call no endpoint sees a client's address. Takes effect for the next connection or flow. */
  knowClients(facts: ClientFacts): void;
  /**
   * Stops listening; resolves when the local port is free. TCP connections continue, UDP flows end (upstream
   * `pkg/proxy/userspace/proxier.go` stopProxy). Ignored for an unknown id.
   */
  close(id: ListenerId): Promise<void>;
  /** Of every open listener. Listeners may come and go meanwhile. */
  stats(): Iterable<ListenerStats>;
  /** `undefined` for an id that is not open. */
  statsOf(id: ListenerId): ListenerStats | undefined;
  /**
   * The open TCP connections and UDP flows of one listener, in pieces so small that no client waits for them. Those
   * that begin or end meanwhile may be missing. Empty for an id that is not open.
   */
  connections(id: ListenerId): AsyncIterable<readonly OpenConnection[]>;
  /**
   * Reports every connection and flow that ends from now on, and every client that is refused; `undefined` reports
   * none. A connection that began before is reported in full. What a dying thread had is missing.
   */
  logConnections(sink: ConnectionLogSink | undefined): void;
  /** The endpoint that a new connection from this client would get. `undefined` without one. Changes nothing. */
  nextPick(id: ListenerId, client: Address): Promise<Endpoint | undefined>;
  /** Closes every listener and ends every connection and flow. */
  shutdown(): Promise<void>;
  /** Absent in an engine whose connections cannot leave the process. */
  readonly handOver?: HandOver;
}

/** A time is shown as the next of these, so between the first and the last but one as less than twice what it was. */
export const CONNECT_BOUNDS_MS = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096] as const;

/**
 * Answered TCP dials by the time that they took: up to so many milliseconds. The last has those that took longer, too:
 * the longest timeout of a dial is 2 s, so only a late thread counts there.
 */
export const CONNECT_TIMES = CONNECT_BOUNDS_MS.map((ms) => `connects${ms}ms` as const);

/** The counter of clients that were refused for this reason. */
export const REFUSAL_COUNTER = {
  'no-endpoints': 'noEndpoints',
  exhausted: 'exhausted',
  'wait-timeout': 'waitTimeouts',
  'wait-full': 'waitRefused',
} as const satisfies Record<Refusal, Counter>;

/** The counter of dials that failed for this reason. */
export const FAILURE_COUNTER = {
  refused: 'failedRefused',
  timeout: 'failedTimeout',
  unreachable: 'failedUnreachable',
  other: 'failedOther',
} as const satisfies Record<DialFailure, Counter>;

/** The counter of a dial that took so long. */
export function connectTimeOf(ms: number): Counter {
  // Without one it is -1: the last.
  return CONNECT_TIMES.at(CONNECT_BOUNDS_MS.findIndex((bound) => ms <= bound)) as Counter;
}

/** "≤64ms", ">2048ms": a measured time would look the same without the sign. */
export function boundText(ms: number): string {
  return ms === CONNECT_BOUNDS_MS.at(-1) ? `>${CONNECT_BOUNDS_MS.at(-2)}ms` : `≤${ms}ms`;
}

/** Clients that waited and no longer do, by the time that they waited: up to so many milliseconds. */
export const WAIT_BOUNDS_MS = [100, 1_000, 5_000, 30_000, 120_000] as const;

/** The last has those that waited longer, too. */
export const WAIT_TIMES = WAIT_BOUNDS_MS.map((ms) => `waits${ms}ms` as const);

/** The counter of a client that has waited so long. */
export function waitTimeOf(ms: number): Counter {
  return WAIT_TIMES.at(WAIT_BOUNDS_MS.findIndex((bound) => ms <= bound)) as Counter;
}

/**
 * `connections`: TCP connections accepted and UDP flows begun; `active`: those still open. `receivedBytes`: from
 * clients; `sentBytes`: to clients. `connects`: answered TCP dials; `connectMs`: their total time; `connects1ms` and
 * the like: {@link CONNECT_TIMES}; `failed…`: failed dials; `retries`: dials after the first of a connection.
 * `resets`: TCP connections that an endpoint reset, or whose path broke. `noEndpoints`, `exhausted`: clients refused
 * without endpoints, or after every try failed. `limited`: flows refused at a limit, and datagrams that the kernel
 * refused. `notKept`: datagrams that no other endpoint would get if theirs failed, because too many wait for an
 * answer. `pauses`: pauses of accepting while descriptors run out. `affinityForgotten`: clients that may get another
 * endpoint than before, because too many are remembered. `hedges`: second dials while the first was silent.
 * `ejections`: of endpoints that failed too often in a row; `ejected`: those now. `waiting`: clients that wait for an
 * endpoint now; `waitMs`: the time that those waited who no longer do; `waits100ms` and the like: {@link WAIT_TIMES};
 * `waitTimeouts`: those of them whose time ran out; `waitRefused`: clients refused because too many wait.
 */
export const COUNTERS = [
  'connections',
  'active',
  'receivedBytes',
  'sentBytes',
  'connects',
  'connectMs',
  'retries',
  'failedRefused',
  'failedTimeout',
  'failedUnreachable',
  'failedOther',
  'resets',
  'noEndpoints',
  'exhausted',
  'limited',
  'notKept',
  'affinityForgotten',
  'hedges',
  'ejections',
  'ejected',
  'pauses',
  'waiting',
  'waitMs',
  'waitTimeouts',
  'waitRefused',
  ...WAIT_TIMES,
  ...CONNECT_TIMES,
] as const;

/** What is there now: they fall, too, and begin with 0 in a process that takes over. */
export const GAUGES: ReadonlySet<Counter> = new Set(['active', 'ejected', 'waiting']);

export type Counter = (typeof COUNTERS)[number];
export type Counters = Record<Counter, number>;

/** Failed dials, and clients refused without a dial. */
export function failuresOf(counters: Readonly<Counters>): number {
  const { failedRefused, failedTimeout, failedUnreachable, failedOther } = counters;
  const { noEndpoints, waitTimeouts, waitRefused, limited } = counters;
  const failedDials = failedRefused + failedTimeout + failedUnreachable + failedOther;
  return failedDials + noEndpoints + waitTimeouts + waitRefused + limited;
}

export interface ListenerStats extends ListenerName {
  readonly localPort: number;
  /** The thread that carries its traffic, from 0. Absent in an engine without threads. */
  readonly worker?: number;
  readonly counters: Readonly<Counters>;
  /**
   * For each endpoint, since it came into either list: connections and bytes of those that it answered, failures and
   * retries of dials to it. Computed at the first look. Absent in an engine that does not count them.
   */
  readonly endpoints?: readonly EndpointStats[];
}

export interface EndpointStats {
  readonly endpoint: NamedEndpoint;
  readonly counters: Readonly<Counters>;
}

/** `half-closed`: one side of a TCP connection has ended its direction. `flow`: UDP. `waiting`: for an endpoint. */
export type ConnectionState = 'waiting' | 'dialling' | 'established' | 'half-closed' | 'flow';

export interface OpenConnection {
  readonly client: Endpoint;
  /** `undefined` while none has been tried. */
  readonly endpoint: Endpoint | undefined;
  readonly state: ConnectionState;
  /** It ends after this much further silence, or waiting; whole. Absent where neither ends it. */
  readonly expiresMs?: number;
}

/** `descriptors`: those of the namespace, while few are free. */
export type Limit = 'flows-per-service' | 'flows-per-namespace' | 'flows-total' | 'descriptors';

/** Why a client got no endpoint. */
export type Refusal = 'no-endpoints' | 'exhausted' | 'wait-timeout' | 'wait-full';

export type DialFailure = 'refused' | 'timeout' | 'unreachable' | 'other';

/** Called on the data path: must be cheap and must not throw. */
export interface DataPlaneObserver {
  /** A client was refused: there is no endpoint, or none answered, or it would have waited for too long. */
  clientRefused(event: { name: ServicePortName; client: string; reason: Refusal }): void;
  /** A client waits for an endpoint, where nobody waited before. */
  clientWaits(event: { name: ServicePortName }): void;
  /** One endpoint did not answer; another may be tried. */
  dialFailed(event: { name: ServicePortName; backend: string; reason: DialFailure; err: string }): void;
  /** An endpoint failed too often in a row and is tried last from now on; `err`: the last failure. */
  ejected(event: { name: ServicePortName; backend: string; failures: number; err: string }): void;
  /** An ejected endpoint has answered. */
  readmitted(event: { name: ServicePortName; backend: string }): void;
  /** A new flow was refused at a limit. Without a client: TCP clients wait, because of that limit. */
  limited(event: { name: ServicePortName; client?: string; limit: Limit }): void;
  /** A listener failed after it had been opened; the engine has tried to go on. */
  listenerFailed(event: { name: ServicePortName; err: string }): void;
  /** Of those with affinity, because too many are remembered. */
  clientsForgotten(event: { name: ServicePortName }): void;
}

/** Times in milliseconds. Defaults are the CLI's. */
export interface DataPlaneOptions {
  /** How long TCP connections outlive an endpoint that is gone for good; 0: no limit. */
  readonly endpointDrainTimeoutMs: number;
  /** How long a connection with one direction closed may be silent. */
  readonly tcpHalfOpenTimeoutMs: number;
  /** How long data to an endpoint may stay unacknowledged; 0: the kernel's default. */
  readonly tcpUserTimeoutMs: number;
  /** Silence that ends a UDP flow after a reply. */
  readonly udpIdleTimeoutMs: number;
  /** Silence that ends a UDP flow before its first reply (at least the idle timeout). */
  readonly udpFirstReplyTimeoutMs: number;
  readonly udpMaxFlowsPerService: number;
  readonly udpMaxFlows: number;
  /** Clients remembered per Service port with ClientIP affinity. */
  readonly affinityMaxClients: number;
  /** Failed dials in a row that eject an endpoint; 0: none is ever ejected. */
  readonly ejectAfter: number;
  /** The first ejection of an endpoint; each further one in a row takes twice as long, up to a minute. */
  readonly ejectTimeMs: number;
  /** Silence of the first endpoint after which a second one is dialled, too; 0: never. */
  readonly dialHedgeMs: number;
  /** The mark (SO_MARK) of packets to endpoints, which our rules leave alone (docs/adr/0019). */
  readonly connectionMark?: number;
  /** Of TCP connections on both sides; by default the node's. */
  readonly congestionControl?: string | undefined;
}

/** `address-in-use`: the port is taken. `address-unavailable`: not an address of this node. */
export type ListenErrorCode = 'address-in-use' | 'address-unavailable' | 'descriptors' | 'failed';

export class ListenError extends Error {
  override readonly name = 'ListenError';
  readonly code: ListenErrorCode;

  constructor(code: ListenErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
