import type { Address } from '../../model/address.ts';
import type { ClientFacts } from '../../model/client-address.ts';
import type { ConnectionLogSink } from '../../model/connection-log.ts';
import type {
  Backends,
  DataPlane,
  DataPlaneObserver,
  DataPlaneOptions,
  ListenerStats,
  ListenSpec,
  OpenConnection,
} from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import type { HandOver } from '../../model/hand-over.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { ListenerId } from '../../model/service-port.ts';
import { close, descriptorLimit } from '../../sys/descriptor.ts';
import { selfCheck } from '../../sys/self-check.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { listenError } from '../errors.ts';
import { FastHandOver } from './hand-over.ts';
import { type ListenSocket, openListenSocket, prepareListener } from './listen-socket.ts';
import type { PortState } from './parcels.ts';
import { CounterMemory, PortCounters } from './port-counters.ts';
import { type CountedBackends, type ListedPage, type PortEvent, type PortId, STATUS_WORDS } from './worker/protocol.ts';
import { type WorkerEntry, WorkerThread, workerEntry } from './worker-thread.ts';

export interface FastDataPlaneSetup {
  readonly options: DataPlaneOptions & { readonly workers: number };
  readonly observer: DataPlaneObserver;
  readonly clock: Clock;
  readonly log: Log;
  /** Another one only in tests. */
  readonly entry?: WorkerEntry;
}

/** No node has as many connections, and a larger table would only cost memory. */
const MAX_DESCRIPTORS = 1 << 20;

interface OpenPort {
  readonly id: PortId;
  readonly spec: ListenSpec;
  readonly socket: ListenSocket;
  readonly worker: WorkerThread;
  readonly counters: PortCounters;
  backends: Backends;
  /** Settles when the worker has it, or with the reason why it cannot. Missing once it is open. */
  opening?: Promise<string | undefined> | undefined;
  isOpen: boolean;
}

function openCommand({ id, spec, socket, counters }: OpenPort, backends: CountedBackends) {
  const { protocol } = spec;
  return {
    kind: 'open',
    port: id,
    name: spec.name,
    protocol,
    fd: socket.fd,
    backends,
    counters: counters.shared,
  } as const;
}

function statsOf({ spec: { id, name, family, protocol }, socket, worker, counters }: OpenPort): ListenerStats {
  let endpoints: ListenerStats['endpoints'];
  return {
    id,
    name,
    family,
    protocol,
    localPort: socket.localPort,
    worker: worker.index,
    counters: counters.read(),
    // Callers that read thousands of listeners seldom look at endpoints.
    get endpoints() {
      endpoints ??= counters.readEndpoints();
      return endpoints;
    },
  };
}

/** Rejects with the reason when workers cannot run here. */
export async function startFastDataPlane(setup: FastDataPlaneSetup): Promise<DataPlane> {
  selfCheck();
  const plane = new FastDataPlane(setup);
  try {
    await plane.start();
  } catch (err) {
    await plane.shutdown();
    throw err;
  }
  return plane;
}

/**
 * The main thread's part: it opens listening sockets, assigns them to workers, and reads counters. It sees no traffic.
 */
class FastDataPlane implements DataPlane {
  readonly handOver: HandOver;
  readonly #observer: DataPlaneObserver;
  readonly #workers: readonly WorkerThread[];
  readonly #ports = new Map<ListenerId, OpenPort>();
  readonly #names = new Map<PortId, ServicePortName>();
  readonly #counterMemory = new CounterMemory();
  #clientFacts: ClientFacts | undefined;
  #connectionLog: ConnectionLogSink | undefined;
  #lastId: PortId = 0;
  #isShutDown = false;

  constructor({ options: { workers, ...options }, observer, clock, log, entry = workerEntry() }: FastDataPlaneSetup) {
    this.#observer = observer;
    const limit = Math.min(descriptorLimit(), MAX_DESCRIPTORS);
    const shared = {
      options,
      // Some are kept for the rest of the program: logs, the API server, metrics, iptables.
      descriptorCeiling: limit - Math.min(256, Math.ceil(limit / 8)),
      owners: new SharedArrayBuffer(limit),
      status: new SharedArrayBuffer(workers * STATUS_WORDS * 4),
    };
    this.#workers = Array.from({ length: workers }, (_, index) => {
      const worker: WorkerThread = new WorkerThread({
        ...shared,
        index,
        entry,
        clock,
        log,
        onEvent: (event) => this.#observe(event),
        connectionLog: {
          ended: (entries) => this.#connectionLog?.ended(entries),
          lost: (count) => this.#connectionLog?.lost(count),
        },
        onRestart: () => this.#reopen(worker),
      });
      return worker;
    });
    this.handOver = new FastHandOver({
      workers: this.#workers,
      ports: () => this.#states(),
      closeListeners: () => this.#closeListeners(),
      adoptPort: (state) => this.#adoptPort(state),
      leastLoaded: () => this.#leastLoaded(),
    });
  }

  async start(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.start()));
  }

  async open(spec: ListenSpec, backends: Backends): Promise<number> {
    if (this.#isShutDown) throw listenError(spec, 'failed', 'the data plane has been shut down');
    if (this.#ports.has(spec.id)) throw listenError(spec, 'failed', 'that listener is open already');
    const port = this.#assign(spec, openListenSocket(spec), backends);
    port.opening = port.worker.change(openCommand(port, port.counters.follow(backends)));
    const err = await port.opening;
    if (this.#ports.get(spec.id) !== port) {
      throw listenError(spec, 'failed', 'it was closed while it was being opened');
    }
    if (err !== undefined) {
      this.#ports.delete(spec.id);
      this.#release(port);
      throw listenError(spec, 'failed', err);
    }
    port.isOpen = true;
    port.opening = undefined;
    return port.socket.localPort;
  }

  update(id: ListenerId, backends: Backends): void {
    const port = this.#ports.get(id);
    if (port === undefined) return;
    port.backends = backends;
    port.worker.send({ kind: 'update', port: port.id, backends: port.counters.follow(backends) });
  }

  knowClients(facts: ClientFacts): void {
    this.#clientFacts = facts;
    for (const worker of this.#workers) worker.send({ kind: 'know-clients', facts });
  }

  async close(id: ListenerId): Promise<void> {
    const port = this.#ports.get(id);
    if (port === undefined) return;
    this.#ports.delete(id);
    // The worker must give the descriptor back first, or it would use the next descriptor of the same number.
    await port.opening;
    await port.worker.change({ kind: 'close', port: port.id });
    this.#release(port);
  }

  *stats(): Iterable<ListenerStats> {
    for (const port of this.#ports.values()) if (port.isOpen) yield statsOf(port);
  }

  statsOf(id: ListenerId): ListenerStats | undefined {
    const port = this.#ports.get(id);
    return port?.isOpen ? statsOf(port) : undefined;
  }

  async *connections(id: ListenerId): AsyncIterable<readonly OpenConnection[]> {
    const port = this.#ports.get(id);
    // Most of thousands of listeners have nothing open; asking the worker takes far longer than this check.
    if (!port?.isOpen || port.counters.active === 0) return;
    for (let from: number | undefined = 0; from !== undefined; ) {
      const page: ListedPage | undefined = await port.worker.ask({ kind: 'list', port: port.id, from });
      if (page === undefined || this.#ports.get(id) !== port) return;
      if (page.connections.length > 0) yield page.connections;
      from = page.next;
    }
  }

  logConnections(sink: ConnectionLogSink | undefined): void {
    this.#connectionLog = sink;
    for (const worker of this.#workers) worker.wantEntries(sink !== undefined);
  }

  async nextPick(id: ListenerId, client: Address): Promise<Endpoint | undefined> {
    const port = this.#ports.get(id);
    if (!port?.isOpen) return undefined;
    return (await port.worker.ask({ kind: 'peek', port: port.id, client }))?.endpoint;
  }

  async shutdown(): Promise<void> {
    if (this.#isShutDown) return;
    this.#isShutDown = true;
    await Promise.all(this.#workers.map((worker) => worker.end('shutdown')));
    this.#closeListeners();
  }

  #closeListeners(): void {
    this.#isShutDown = true;
    for (const { socket } of this.#ports.values()) close(socket.fd);
    this.#ports.clear();
  }

  #assign(spec: ListenSpec, socket: ListenSocket, backends: Backends): OpenPort {
    const id = ++this.#lastId;
    const port: OpenPort = {
      id,
      spec,
      socket,
      backends,
      worker: this.#leastLoaded(),
      counters: new PortCounters(this.#counterMemory),
      isOpen: false,
    };
    port.worker.ports++;
    this.#ports.set(spec.id, port);
    this.#names.set(id, spec.name);
    return port;
  }

  async #adoptPort(state: PortState): Promise<OpenPort> {
    const { id, name, family, protocol, address, localPort, fd, backends, counters, endpointCounters, picker } = state;
    const spec = { id, name, family, protocol, address, port: localPort };
    if (this.#ports.has(id)) throw new Error('two ports have one id');
    prepareListener(fd, spec);
    const port = this.#assign(spec, { fd, localPort }, backends);
    const counted = port.counters.resume(backends, counters, endpointCounters);
    const err = await port.worker.change({ ...openCommand(port, counted), picker });
    if (err !== undefined) throw new Error(`cannot take over ${name}: ${err}`);
    port.isOpen = true;
    return port;
  }

  *#states(): Iterable<{ readonly id: PortId; readonly state: PortState }> {
    for (const { id, spec, socket, backends, counters } of this.#ports.values()) {
      const endpointCounters = counters
        .readEndpoints()
        .map((each) => [endpointName(each.endpoint), each.counters] as const);
      const state = {
        ...spec,
        ...socket,
        backends,
        counters: counters.read(),
        endpointCounters: new Map(endpointCounters),
        picker: undefined,
      };
      yield { id, state };
    }
  }

  #release({ id, socket, worker }: OpenPort): void {
    worker.ports--;
    this.#names.delete(id);
    close(socket.fd);
  }

  /** By its number of ports: traffic is not known in advance, and moving a port would end its connections. */
  #leastLoaded(): WorkerThread {
    return this.#workers.reduce((least, worker) => (worker.ports < least.ports ? worker : least));
  }

  #reopen(worker: WorkerThread): void {
    if (this.#clientFacts !== undefined) worker.send({ kind: 'know-clients', facts: this.#clientFacts });
    for (const port of this.#ports.values()) {
      if (port.worker !== worker) continue;
      void worker.change(openCommand(port, port.counters.inherit(port.backends))).then((err) => {
        if (err !== undefined) this.#observer.listenerFailed({ name: port.spec.name, err });
      });
    }
  }

  #observe({ kind, port, ...event }: PortEvent): void {
    const name = this.#names.get(port);
    // An event has what the observer's method of the same name takes, except for the name of the port.
    const report = this.#observer[kind] as (event: object) => void;
    if (name !== undefined) report.call(this.#observer, { name, ...event });
  }
}
