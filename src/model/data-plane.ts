import type { Address, IpFamily } from './address.ts';
import type { Endpoint } from './endpoint.ts';
import type { HandOver } from './hand-over.ts';
import type { ServicePortName, SessionAffinity } from './service.ts';
import type { ListenerId, ProxiedProtocol } from './service-port.ts';

/** Where to listen for one Service port. It keeps its listener for as long as this does not change. */
export interface ListenSpec {
  readonly id: ListenerId;
  /** For display; several listeners may have the same name. */
  readonly name: ServicePortName;
  readonly family: IpFamily;
  readonly protocol: ProxiedProtocol;
  /** Of the family: `0.0.0.0`, `::`, or one address of the node. `::` takes no IPv4 clients. */
  readonly address: string;
  /** 0 lets the kernel choose. */
  readonly port: number;
}

/** What the picker of one listener chooses from. Replaced as a whole. */
export interface Backends {
  readonly endpoints: readonly Endpoint[];
  /** Get no new connections. Established ones continue, and answers of UDP flows still arrive. */
  readonly draining?: readonly Endpoint[];
  readonly affinity: SessionAffinity;
}

/**
 * The data path: listeners, picking, dialling, copying, UDP flows. It knows nothing of Kubernetes beyond the name of
 * a Service port, and owns each port's picker state (docs/adr/0001). Every implementation passes
 * `test/compliance/data-plane.ts`.
 */
export interface DataPlane {
  /**
   * Starts listening and resolves with the local port. Rejects with {@link ListenError} and leaves nothing behind.
   * The id must not be open already.
   */
  open(spec: ListenSpec, backends: Backends): Promise<number>;
  /**
   * Takes effect for the next connection or flow. UDP flows of draining endpoints deliver further answers until they
   * fall silent; the client's next datagram begins another flow, so that a client that never changes its port does not
   * keep an endpoint for ever. UDP flows of endpoints in neither list end at once, and their TCP connections are reset
   * after `endpointDrainTimeoutMs`, unless the endpoint comes back before. Ignored for an id that is not open.
   */
  update(id: ListenerId, backends: Backends): void;
  /**
   * Stops listening; resolves when the local port is free. Established TCP connections go on until they end by
   * themselves, UDP flows end (upstream `pkg/proxy/userspace/proxier.go` stopProxy). Ignored for an unknown id.
   */
  close(id: ListenerId): Promise<void>;
  /** The counters of every open listener, each as of its turn. Listeners may come and go meanwhile. */
  stats(): Iterable<ListenerStats>;
  /** The same of one. `undefined` for an id that is not open. */
  statsOf(id: ListenerId): ListenerStats | undefined;
  /**
   * The open TCP connections and UDP flows of one listener, in pieces so small that no client waits for them. A piece
   * is collected when the consumer asks for it, so connections that begin or end meanwhile may be missing. Empty for an
   * id that is not open.
   */
  connections(id: ListenerId): AsyncIterable<readonly OpenConnection[]>;
  /**
   * The endpoint that a new connection from this client would get: by affinity, else the next in turn. Changes nothing.
   * `undefined` without endpoints, or for an id that is not open.
   */
  nextPick(id: ListenerId, client: Address): Promise<Endpoint | undefined>;
  /** Closes every listener and ends every connection and flow. */
  shutdown(): Promise<void>;
  /** Missing in an engine whose connections cannot leave the process. */
  readonly handOver?: HandOver;
}

/**
 * `connections`: TCP connections accepted and UDP flows begun; `active`: those still open. `receivedBytes`: from
 * clients; `sentBytes`: to clients. `connects`: TCP dials that were answered, `connectMs`: the milliseconds that these
 * took together; `failed…`: dials that failed, by reason; `retries`: dials after the first of a connection. `resets`:
 * TCP connections that an endpoint has reset, or the way to which broke. `noEndpoints`: clients refused because there
 * was none; `exhausted`: because every try failed. `limited`: flows refused at a bound, and datagrams that the kernel
 * would not take. `pauses`: times that accepting stopped because descriptors had run out; clients wait meanwhile.
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
  'pauses',
] as const;

export type Counter = (typeof COUNTERS)[number];
export type Counters = Record<Counter, number>;

/** Failed dials, and clients refused without a dial. */
export function failuresOf(counters: Readonly<Counters>): number {
  const { failedRefused, failedTimeout, failedUnreachable, failedOther, noEndpoints, limited } = counters;
  return failedRefused + failedTimeout + failedUnreachable + failedOther + noEndpoints + limited;
}

export interface ListenerStats {
  readonly id: ListenerId;
  readonly name: ServicePortName;
  readonly family: IpFamily;
  readonly protocol: ProxiedProtocol;
  readonly localPort: number;
  /** Which thread carries its traffic, counted from 0. Missing in an engine without threads. */
  readonly worker?: number;
  readonly counters: Readonly<Counters>;
  /**
   * The same for each endpoint, draining ones too, since it came into either list: connections and bytes of those that
   * it answered, and failures and retries of dials to it. As it was when this was first looked at. Missing in an engine
   * that does not count them.
   */
  readonly endpoints?: readonly EndpointStats[];
}

export interface EndpointStats {
  readonly endpoint: Endpoint;
  readonly counters: Readonly<Counters>;
}

/** `half-closed`: one side of a TCP connection has ended its direction. `flow`: UDP. */
export type ConnectionState = 'dialling' | 'established' | 'half-closed' | 'flow';

export interface OpenConnection {
  readonly client: Endpoint;
  /** `undefined` while none has been tried. */
  readonly endpoint: Endpoint | undefined;
  readonly state: ConnectionState;
  /** After how much silence, from now on, it would be ended; whole. Missing where silence does not end it. */
  readonly expiresMs?: number;
}

export type DialFailure = 'refused' | 'timeout' | 'unreachable' | 'other';

/** What an operator should hear about. Called on the data path: must be cheap and must not throw. */
export interface DataPlaneObserver {
  /** A client was refused: there is no endpoint, or none answered. */
  turnedAway(event: {
    readonly name: ServicePortName;
    readonly client: string;
    readonly reason: 'no-endpoints' | 'exhausted';
  }): void;
  /** One endpoint did not answer; another may be tried. */
  dialFailed(event: {
    readonly name: ServicePortName;
    readonly backend: string;
    readonly reason: DialFailure;
    readonly err: string;
  }): void;
  /** A bound kept a new flow out. */
  limited(event: {
    readonly name: ServicePortName;
    readonly client: string;
    readonly limit: 'flows-per-service' | 'flows-total';
  }): void;
  /** A listener failed after it had been opened; the engine has tried to go on. */
  listenerFailed(event: { readonly name: ServicePortName; readonly err: string }): void;
}

/** Times in milliseconds. Defaults are the CLI's. */
export interface DataPlaneOptions {
  /** How long TCP connections outlive an endpoint that is gone for good; 0: until they end by themselves. */
  readonly endpointDrainTimeoutMs: number;
  /** How long a connection may live with one direction closed and nothing moving in the other. */
  readonly tcpHalfOpenTimeoutMs: number;
  /** How long an endpoint's node may leave what was sent to it unanswered; 0: as long as the kernel tries. */
  readonly tcpUserTimeoutMs: number;
  /** Silence that ends a UDP flow which has had a reply. */
  readonly udpIdleTimeoutMs: number;
  /** Silence that ends a UDP flow which has not had its first reply yet (at least the idle timeout). */
  readonly udpFirstReplyTimeoutMs: number;
  readonly udpMaxFlowsPerService: number;
  readonly udpMaxFlows: number;
  /** Clients remembered per Service port with ClientIP affinity; the longest unseen is forgotten first. */
  readonly affinityMaxClients: number;
  /** The mark (SO_MARK) of what goes to endpoints, by which our rules spare it (docs/adr/0019). Absent: none. */
  readonly connectionMark?: number;
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
