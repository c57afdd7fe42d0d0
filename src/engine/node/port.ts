import { unmapped } from '../../model/address.ts';
import {
  type Backends,
  COUNTERS,
  type Counters,
  type DataPlaneObserver,
  type DataPlaneOptions,
  type DialFailure,
  type EndpointStats,
  type ListenSpec,
  type OpenConnection,
} from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { type Departure, Departures } from '../../services/departures.ts';
import { Picker } from '../../services/picker.ts';
import type { Clock, Random } from '../../util/clock.ts';
import { dialFailureOf, errnoOf, FAILURE_COUNTER } from '../errors.ts';
import type { KernelSockets } from './kernel-sockets.ts';

/** Makes the descriptor of a socket for a connection to this address. May throw. */
export type OpenSocket = (address: string, protocol: 'TCP' | 'UDP') => number;

export interface NodeDataPlaneSetup {
  readonly options: DataPlaneOptions;
  readonly observer: DataPlaneObserver;
  readonly clock: Clock;
  readonly random: Random;
  /** Missing where libc cannot be called. */
  readonly kernel?: KernelSockets | undefined;
  /** The node's own addresses; by default those of its interfaces that are up. */
  readonly localAddresses?: () => readonly string[];
  /** How sockets towards endpoints are made; by default as Node does, which cannot mark them. */
  readonly openSocket?: OpenSocket | undefined;
}

/** A TCP connection or a UDP flow. */
export interface Session {
  /** The endpoint that answered. */
  readonly endpoint: Endpoint | undefined;
  /** `undefined` when it is over. */
  describe(): OpenConnection | undefined;
  /** Ends it at once: a TCP connection by a reset of both sides. */
  cut(): void;
}

/** One Service port, whatever its protocol: its endpoints, its counters, and its open connections and flows. */
export class Port {
  readonly spec: ListenSpec;
  readonly setup: NodeDataPlaneSetup;
  readonly picker: Picker;
  readonly counters = newCounters();
  /** They go on when a TCP port closes. */
  readonly sessions = new Set<Session>();
  /** In the set or draining, by name. */
  #endpoints: ReadonlyMap<string, EndpointStats & { readonly counters: Counters }> = new Map();
  /** For TCP connections that are ended some time after their endpoint has gone. */
  readonly #departures: Departures | undefined;

  constructor(spec: ListenSpec, backends: Backends, setup: NodeDataPlaneSetup) {
    const { random, options } = setup;
    this.spec = spec;
    this.setup = setup;
    this.picker = new Picker({ random, affinityMaxClients: options.affinityMaxClients });
    if (spec.protocol === 'TCP' && options.endpointDrainTimeoutMs > 0) this.#departures = new Departures();
    this.update(backends);
  }

  /** Endpoints that stay, in the set or draining, keep their counts. */
  update(backends: Backends): void {
    const before = this.#endpoints;
    this.#endpoints = new Map(
      [...backends.endpoints, ...(backends.draining ?? [])].map((endpoint) => {
        const name = endpointName(endpoint);
        return [name, before.get(name) ?? { endpoint, counters: newCounters() }];
      }),
    );
    this.picker.update(backends);
    this.#drainLater(this.#departures?.update(backends));
  }

  /** In the set or draining. */
  has(endpoint: Endpoint): boolean {
    return this.#endpoints.has(endpointName(endpoint));
  }

  /** To count in. Nobody reads the counters of an endpoint that has left. */
  countersOf(endpoint: Endpoint): Counters {
    return this.#endpoints.get(endpointName(endpoint))?.counters ?? newCounters();
  }

  endpointStats(): readonly EndpointStats[] {
    return Array.from(this.#endpoints.values(), ({ endpoint, counters }) => ({ endpoint, counters: { ...counters } }));
  }

  begin(session: Session): void {
    this.sessions.add(session);
    this.counters.connections++;
    this.counters.active++;
  }

  /** The connection or flow has its endpoint, whose counters these are. */
  joined(share: Counters): void {
    share.connections++;
    share.active++;
  }

  /** Every connection and flow ends here, once. `share`: its endpoint's counters, if it had one. */
  ended(session: Session, share: Counters | undefined): void {
    this.sessions.delete(session);
    this.counters.active--;
    if (share !== undefined) share.active--;
  }

  /** The endpoint may have left during the dial. */
  connectedTo(endpoint: Endpoint): void {
    this.#drainLater(this.#departures?.connected(endpointName(endpoint)));
  }

  clientRefused(client: string, reason: 'no-endpoints' | 'exhausted'): void {
    this.counters[reason === 'exhausted' ? 'exhausted' : 'noEndpoints']++;
    this.setup.observer.clientRefused({ name: this.spec.name, client: unmapped(client), reason });
  }

  dialFailed(endpoint: Endpoint, err: Error, reason: DialFailure = dialFailureOf(errnoOf(err))): DialFailure {
    this.counters[FAILURE_COUNTER[reason]]++;
    this.countersOf(endpoint)[FAILURE_COUNTER[reason]]++;
    const backend = endpointName(endpoint);
    this.setup.observer.dialFailed({ name: this.spec.name, backend, reason, err: err.message });
    return reason;
  }

  listenerFailed(err: unknown): void {
    this.setup.observer.listenerFailed({ name: this.spec.name, err: err instanceof Error ? err.message : String(err) });
  }

  #drainLater(departure: Departure | undefined): void {
    if (departure === undefined) return;
    const { clock, options } = this.setup;
    // Nothing cancels it: after a shutdown there is no connection left to end.
    clock.after(options.endpointDrainTimeoutMs, () => {
      const gone = this.#departures?.end(departure);
      for (const session of this.sessions) {
        if (session.endpoint !== undefined && gone?.has(endpointName(session.endpoint))) session.cut();
      }
    });
  }
}

function newCounters(): Counters {
  return Object.fromEntries(COUNTERS.map((name) => [name, 0])) as Counters;
}

/** Counts as refused, as where the kernel gave the connection another port (Go's `net` package does the same). */
export function connectedToItself(endpoint: Endpoint): Error {
  const message = `connect ECONNREFUSED ${endpointName(endpoint)}: nobody listens there, the connection was to itself`;
  return Object.assign(new Error(message), { code: 'ECONNREFUSED' });
}
