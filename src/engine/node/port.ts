import { unmapped } from '../../model/address.ts';
import type { KeptAddresses } from '../../model/client-address.ts';
import {
  type ConnectionEntry,
  type ConnectionLogSink,
  type Ending,
  NO_TRIES,
  type Tries,
} from '../../model/connection-log.ts';
import {
  type Backends,
  COUNTERS,
  type Counters,
  type DataPlaneObserver,
  type DataPlaneOptions,
  type DialFailure,
  type EndpointStats,
  type Limit,
  type ListenSpec,
  type OpenConnection,
} from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { type ProxyProtocol, partsOf } from '../../model/service.ts';
import type { AffinityMemory } from '../../services/affinity-memory.ts';
import { type Departure, Departures } from '../../services/departures.ts';
import type { Member } from '../../services/member.ts';
import { Picker } from '../../services/picker.ts';
import type { MaglevTables } from '../../services/schedulers/maglev-tables.ts';
import type { Clock, Random } from '../../util/clock.ts';
import { TokenBucket } from '../../util/token-bucket.ts';
import { DESCRIPTORS_OF } from '../descriptor-share.ts';
import { dialFailureOf, errnoOf, FAILURE_COUNTER } from '../errors.ts';
import { Hedges } from '../hedges.ts';
import { Holding } from '../holdings.ts';
import { REFUSED_RATE } from '../refused-rate.ts';
import type { Admission } from './admission.ts';
import type { Keeper } from './keeper.ts';
import type { KernelSockets } from './kernel-sockets.ts';

/** What the Service ports of one engine share. */
export interface Shared {
  /** `undefined`: nobody wants entries. */
  connectionLog: ConnectionLogSink | undefined;
  readonly maglevTables: MaglevTables;
  readonly affinityMemory: AffinityMemory;
  readonly admission: Admission;
}

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
  /** Missing where clients' addresses cannot be kept. */
  readonly keeper?: Keeper | undefined;
  /** How sockets towards endpoints are made; by default as Node does, which cannot mark them. */
  readonly openSocket?: OpenSocket | undefined;
  /** By default this process's. Others only in tests. */
  readonly descriptorLimit?: number | undefined;
}

/** An endpoint with its counters, which nobody reads once it has left. */
export interface Target {
  readonly member: Member;
  readonly counters: Counters;
}

/** What its Service port does not know of it. `beganMs`: by the engine's clock. */
export type EndedSession = Omit<ConnectionEntry, 'name' | 'protocol' | 'endedAt' | 'durationMs'> & {
  readonly beganMs: number;
};

/** A TCP connection or a UDP flow. */
export interface Session {
  /** The endpoint that answered. */
  readonly endpoint: Endpoint | undefined;
  /** `undefined` when it is over. */
  describe(): OpenConnection | undefined;
  /** Ends it at once: a TCP connection by a reset of both sides. */
  cut(ending: Ending): void;
}

/** One Service port, whatever its protocol: its endpoints, its counters, and its open connections and flows. */
export class Port {
  readonly spec: ListenSpec;
  readonly setup: NodeDataPlaneSetup;
  readonly #shared: Shared;
  /** Entries of refused datagrams. */
  #refused: TokenBucket | undefined;
  readonly picker: Picker;
  readonly counters = newCounters();
  /** What its namespace holds of the process's descriptors. */
  readonly holding: Holding;
  /** See {@link Backends.udpReplayMs}. */
  udpReplayMs: number | undefined;
  /** Bytes of datagrams that nobody has answered yet. */
  keptBytes = 0;
  /** They go on when a TCP port closes. */
  readonly sessions = new Set<Session>();
  proxyProtocol: ProxyProtocol | undefined;
  /** Which clients endpoints see by their own address. */
  keptAddresses: KeptAddresses | undefined;
  readonly #hedges: Hedges;
  #hasAffinity = false;
  /** In the set or draining. */
  #targets: ReadonlyMap<Member, Target> = new Map();
  /** For TCP connections that are ended some time after their endpoint has gone. */
  readonly #departures: Departures | undefined;

  constructor(spec: ListenSpec, backends: Backends, setup: NodeDataPlaneSetup, shared: Shared) {
    const { random, options } = setup;
    this.spec = spec;
    this.setup = setup;
    this.#shared = shared;
    this.holding = new Holding(shared.admission.holdings.join(partsOf(spec.name).namespace), 0);
    this.#hedges = new Hedges(options.dialHedgeMs);
    this.picker = new Picker({
      random,
      affinity: {
        maxClients: options.affinityMaxClients,
        memory: shared.affinityMemory,
        namespace: partsOf(spec.name).namespace,
        onForgotten: (clients) => {
          this.counters.affinityForgotten += clients;
          this.setup.observer.clientsForgotten({ name: spec.name });
        },
      },
      maglevTables: shared.maglevTables,
      ejection: options,
    });
    if (spec.protocol === 'TCP' && options.endpointDrainTimeoutMs > 0) this.#departures = new Departures();
    this.update(backends);
  }

  get admission(): Admission {
    return this.#shared.admission;
  }

  /** It is closed. Its connections go on. */
  leave(): void {
    this.admission.holdings.leave(partsOf(this.spec.name).namespace);
  }

  /** Endpoints that stay, in the set or draining, keep their counts. */
  update(backends: Backends): void {
    this.proxyProtocol = backends.proxyProtocol;
    this.keptAddresses = backends.keptAddresses;
    this.picker.update(backends, this.setup.clock.now());
    const before = this.#targets;
    this.#targets = new Map(
      Array.from(this.picker.pool.all(), (member) => [member, before.get(member) ?? newTarget(member)]),
    );
    this.udpReplayMs = backends.udpReplayMs;
    this.#hasAffinity = backends.affinity.type !== 'None';
    this.#showEjected();
    this.#drainLater(this.#departures?.update(backends));
  }

  /** In the set or draining. */
  has(endpoint: Endpoint): boolean {
    return this.picker.pool.find(endpointName(endpoint)) !== undefined;
  }

  /** `member`: from a pick. It may have left since. */
  target(member: Member): Target {
    return this.#targets.get(member) ?? newTarget(member);
  }

  endpointStats(): readonly EndpointStats[] {
    return Array.from(this.#targets.values(), ({ member: { endpoint }, counters }) => {
      return { endpoint, counters: { ...counters } };
    });
  }

  begin(session: Session): void {
    this.sessions.add(session);
    this.#hold(DESCRIPTORS_OF[this.spec.protocol]);
    this.counters.connections++;
    this.counters.active++;
  }

  /** The connection or flow has its endpoint, which it has {@link Member.taken} and gives back in the end. */
  joined({ counters }: Target): void {
    counters.connections++;
    counters.active++;
  }

  /** Every connection and flow ends here, once. `target`: its endpoint, if it had one. */
  ended(session: Session, target: Target | undefined, entry: () => EndedSession): void {
    this.sessions.delete(session);
    this.#hold(-DESCRIPTORS_OF[this.spec.protocol]);
    this.counters.active--;
    if (target !== undefined) {
      target.counters.active--;
      target.member.released();
    }
    this.#log(entry);
  }

  /** A datagram got no flow. */
  refusedDatagram(client: Endpoint, ending: Ending, tries: Tries = NO_TRIES): void {
    const { clock } = this.setup;
    if (this.#shared.connectionLog === undefined) return;
    this.#refused ??= new TokenBucket({ clock, ...REFUSED_RATE });
    const beganMs = clock.now();
    if (!this.#refused.tryTake(beganMs)) {
      this.#shared.connectionLog.lost(1);
      return;
    }
    this.#log(() => ({ client, backend: undefined, ending, beganMs, receivedBytes: 0, sentBytes: 0, tries }));
  }

  #log(entry: () => EndedSession): void {
    const sink = this.#shared.connectionLog;
    if (sink === undefined) return;
    const { clock } = this.setup;
    const { name, protocol } = this.spec;
    const { beganMs, ...others } = entry();
    sink.ended([{ name, protocol, ...others, endedAt: clock.wallNow(), durationMs: clock.now() - beganMs }]);
  }

  /** See {@link Hedges.quietMs}. */
  quietMs(tries: number, timeoutMs: number): number {
    return this.#hedges.quietMs(tries, timeoutMs, this.#hasAffinity);
  }

  /** Takes one of the second dials that there may be. */
  mayHedge(): boolean {
    return this.picker.pool.members.length > 1 && this.#hedges.tryTake();
  }

  /** A dial or a flow. */
  answered({ member }: Target): void {
    if (!this.picker.answered(member, this.setup.clock.now())) return;
    this.setup.observer.readmitted({ name: this.spec.name, backend: member.name });
    this.#showEjected();
  }

  /** The endpoint may have left during the dial. */
  connectedTo({ name }: Member): void {
    this.#drainLater(this.#departures?.connected(name));
  }

  clientRefused(client: string, reason: 'no-endpoints' | 'exhausted'): void {
    this.counters[reason === 'exhausted' ? 'exhausted' : 'noEndpoints']++;
    this.setup.observer.clientRefused({ name: this.spec.name, client: unmapped(client), reason });
  }

  /** `tookMs`: see {@link Picker.failed}. */
  dialFailed(
    { member, counters }: Target,
    err: Error,
    reason: DialFailure = dialFailureOf(errnoOf(err)),
    tookMs?: number,
  ): DialFailure {
    this.counters[FAILURE_COUNTER[reason]]++;
    counters[FAILURE_COUNTER[reason]]++;
    const { clock, observer } = this.setup;
    const event = { name: this.spec.name, backend: member.name, err: err.message };
    observer.dialFailed({ ...event, reason });
    if (this.picker.failed(member, reason, clock.now(), tookMs)) {
      this.counters.ejections++;
      counters.ejections++;
      observer.ejected({ ...event, failures: member.failures });
      this.#showEjected();
    }
    return reason;
  }

  limited(client: string | undefined, limit: Limit): void {
    this.counters.limited++;
    const { name } = this.spec;
    this.setup.observer.limited({ name, limit, ...(client !== undefined && { client: unmapped(client) }) });
  }

  /** Its clients wait, because its namespace holds its share. */
  atShare(): void {
    this.counters.pauses++;
    this.setup.observer.limited({ name: this.spec.name, limit: 'descriptors' });
  }

  listenerFailed(err: unknown): void {
    this.setup.observer.listenerFailed({ name: this.spec.name, err: err instanceof Error ? err.message : String(err) });
  }

  #hold(descriptors: number): void {
    this.holding.add(descriptors);
    this.admission.used += descriptors;
  }

  /** Its gauges. */
  #showEjected(): void {
    const { ejected } = this.picker;
    if (ejected === 0 && this.counters.ejected === 0) return;
    this.counters.ejected = ejected;
    for (const { member, counters } of this.#targets.values()) counters.ejected = this.picker.isEjected(member) ? 1 : 0;
  }

  #drainLater(departure: Departure | undefined): void {
    if (departure === undefined) return;
    const { clock, options } = this.setup;
    // Nothing cancels it: after a shutdown there is no connection left to end.
    clock.after(options.endpointDrainTimeoutMs, () => {
      const gone = this.#departures?.end(departure);
      for (const session of this.sessions) {
        if (session.endpoint !== undefined && gone?.has(endpointName(session.endpoint))) session.cut('proxy-drain');
      }
    });
  }
}

function newTarget(member: Member): Target {
  return { member, counters: newCounters() };
}

function newCounters(): Counters {
  return Object.fromEntries(COUNTERS.map((name) => [name, 0])) as Counters;
}

/** Counts as refused, as where the kernel gave the connection another port (Go's `net` package does the same). */
export function connectedToItself(endpoint: Endpoint): Error {
  const message = `connect ECONNREFUSED ${endpointName(endpoint)}: nobody listens there, the connection was to itself`;
  return Object.assign(new Error(message), { code: 'ECONNREFUSED' });
}
