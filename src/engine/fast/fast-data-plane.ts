import { MessageChannel } from 'node:worker_threads';
import { descriptorLimit } from '../../kernel/descriptor-limit.ts';
import { IdleCores } from '../../kernel/idle-cores.ts';
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
import { partsOf, type ServicePortName } from '../../model/service.ts';
import type { ListenerId } from '../../model/service-port.ts';
import { congestionControlOf, defaultCongestionControl } from '../../sys/congestion-control.ts';
import { close, eventfd, lowestFreeDescriptor } from '../../sys/descriptor.ts';
import { selfCheck } from '../../sys/self-check.ts';
import { must } from '../../sys/sys-error.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { createShares, ShareMemory, type Shares } from '../core/shares.ts';
import { listenError } from '../errors.ts';
import { FastHandOver } from './hand-over.ts';
import { type ListenSocket, openListenSocket, prepareListener } from './listen-socket.ts';
import type { PortState } from './parcels.ts';
import { CounterMemory, endpointSums, PortCounters, sumOf } from './port-counters.ts';
import {
  type CountedBackends,
  type ListId,
  type NumberedEvent,
  type PortId,
  type Spread,
  STATUS_WORDS,
} from './worker/protocol.ts';
import { SPARE_LOOK_MS } from './worker/spreading.ts';
import { type WorkerEntry, WorkerThread, workerEntry } from './worker-thread.ts';

export interface FastDataPlaneSetup {
  readonly options: DataPlaneOptions & { readonly workers: number };
  readonly observer: DataPlaneObserver;
  readonly clock: Clock;
  readonly log: Log;
  /** Others only in tests. */
  readonly entry?: WorkerEntry;
  readonly spread?: Spread;
  readonly descriptorLimit?: number | undefined;
}

/** No node has as many connections, and a larger table would only cost memory. */
const MAX_DESCRIPTORS = 1 << 20;

/** One for all of the thousands of ports that are not busy. */
const NONE: readonly never[] = [];

/** A worker that carries connections of a port without being its home (docs/adr/0027). */
interface Carrier {
  readonly worker: WorkerThread;
  readonly counters: PortCounters;
}

interface OpenPort {
  readonly id: PortId;
  readonly spec: ListenSpec;
  readonly socket: ListenSocket;
  /** Its home, which picks. */
  readonly worker: WorkerThread;
  readonly counters: PortCounters;
  /** By its namespace. */
  readonly taken: SharedArrayBuffer;
  /** Empty until the home is busy. */
  carriers: readonly Carrier[];
  backends: Backends;
  /** Settles when the worker has it, or with the reason why it cannot. `undefined` once it is open. */
  opening: Promise<string | undefined> | undefined;
  isOpen: boolean;
}

function openCommand(port: OpenPort, backends: CountedBackends) {
  return { kind: 'open', ...requestOf(port, port.counters, backends) } as const;
}

function carryCommand(port: OpenPort, { counters }: Carrier, backends: CountedBackends) {
  return { kind: 'carry', ...requestOf(port, counters, backends), home: port.worker.index } as const;
}

function requestOf({ id, spec, socket, taken }: OpenPort, counters: PortCounters, backends: CountedBackends) {
  const { name, protocol } = spec;
  return { port: id, name, protocol, fd: socket.fd, backends, counters: counters.shared, taken };
}

function carriersCommand({ id, carriers }: OpenPort) {
  return { kind: 'carriers', port: id, workers: carriers.map(({ worker }) => worker.index) } as const;
}

/** A way between two workers. One that is dead gets its ways when it is there again. */
function link(one: WorkerThread, other: WorkerThread): void {
  if (!one.isAlive || !other.isAlive) return;
  const { port1, port2 } = new MessageChannel();
  one.send({ kind: 'link', worker: other.index, channel: port1 });
  other.send({ kind: 'link', worker: one.index, channel: port2 });
}

/** A client may have an old and a new flow. */
function identity({ client, endpoint }: OpenConnection): string {
  return `${endpointName(client)} ${endpoint === undefined ? '' : endpointName(endpoint)}`;
}

function countersOf({ counters, carriers }: OpenPort): readonly PortCounters[] {
  return [counters, ...carriers.map((carrier) => carrier.counters)];
}

function statsOf(port: OpenPort): ListenerStats {
  const { spec, socket, worker } = port;
  const { id, name, family, protocol } = spec;
  let endpoints: ListenerStats['endpoints'];
  return {
    id,
    name,
    family,
    protocol,
    localPort: socket.localPort,
    worker: worker.index,
    counters: sumOf(countersOf(port)),
    // Callers that read thousands of listeners seldom look at endpoints.
    get endpoints() {
      endpoints ??= endpointSums(countersOf(port));
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
  readonly #spread: Spread;
  readonly #counterMemory = new CounterMemory();
  readonly #wakeFds: readonly number[];
  readonly #shareMemory: ShareMemory;
  readonly #descriptors: Shares['descriptors'];
  readonly #congestionControl: string | undefined;
  #clientFacts: ClientFacts | undefined;
  #connectionLog: ConnectionLogSink | undefined;
  #lastId: PortId = 0;
  #lastList: ListId = 0;
  #isShutDown = false;

  constructor({ options: { workers, ...options }, observer, clock, log, ...setup }: FastDataPlaneSetup) {
    const { entry = workerEntry(), spread = 'when-busy', descriptorLimit: given } = setup;
    this.#observer = observer;
    this.#spread = spread;
    this.#congestionControl = options.congestionControl;
    const limit = Math.min(descriptorLimit() ?? MAX_DESCRIPTORS, MAX_DESCRIPTORS);
    this.#shareMemory = new ShareMemory(workers + 1);
    const shared = {
      options,
      spread,
      wakeFds: Array.from({ length: workers }, () => must('eventfd', eventfd())),
      taken: this.#shareMemory.all,
      descriptorLimit: given ?? limit,
      owners: new SharedArrayBuffer(limit),
      status: new SharedArrayBuffer(workers * STATUS_WORDS * 4),
    };
    this.#wakeFds = shared.wakeFds;
    this.#descriptors = createShares({ ...shared, row: workers }).descriptors;
    const idleCores = new IdleCores();
    this.#workers = Array.from({ length: workers }, (_, index) => {
      const worker: WorkerThread = new WorkerThread({
        ...shared,
        index,
        entry,
        clock,
        log,
        onEvent: (event) => this.#observe(event),
        onBusy: (port) => this.#onBusy(port),
        idleCores: () => idleCores.at(clock.now(), SPARE_LOOK_MS),
        onGone: () => Promise.all(this.#others(worker).map((each) => each.ask({ kind: 'unlink', worker: index }))),
        onReclaimed: () => this.#shareMemory.clear(index),
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
      closeAll: () => this.#closeAll(),
      adoptPort: (state) => this.#adoptPort(state),
      leastLoaded: () => this.#leastLoaded(),
    });
  }

  async start(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.start()));
    // What the rest of the program has, about.
    this.#descriptors.take(lowestFreeDescriptor());
    for (const [index, worker] of this.#workers.entries()) {
      for (const other of this.#workers.slice(index + 1)) link(worker, other);
    }
  }

  async open(spec: ListenSpec, backends: Backends): Promise<number> {
    if (this.#isShutDown) throw listenError(spec, 'failed', 'the data plane has been shut down');
    if (this.#ports.has(spec.id)) throw listenError(spec, 'failed', 'that listener is open already');
    const port = this.#assign(spec, openListenSocket(spec, this.#congestionControl), backends);
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
    if (this.#spread !== 'when-busy') await this.#addCarriers(port);
    return port.socket.localPort;
  }

  update(id: ListenerId, backends: Backends): void {
    const port = this.#ports.get(id);
    if (port === undefined) return;
    port.backends = backends;
    // The home last: others then know each endpoint that it picks.
    for (const { worker, counters } of [...port.carriers, port]) {
      worker.send({ kind: 'update', port: port.id, backends: counters.follow(backends) });
    }
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
    await Promise.all(port.carriers.map(({ worker }) => worker.change({ kind: 'uncarry', port: port.id })));
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
    if (!port?.isOpen) return;
    // Most of thousands of listeners have nothing open; asking the worker takes far longer than this check.
    if (countersOf(port).every(({ open }) => open === 0)) return;
    // The home first: connections only move away from it, and carriers may have come meanwhile.
    const seen = new Set<string>();
    for await (const page of this.#listed(port, port.worker)) {
      for (const each of page) seen.add(identity(each));
      yield page;
    }
    for (const carrier of port.carriers) {
      for await (const page of this.#listed(port, carrier.worker)) {
        const others = page.filter((each) => !seen.has(identity(each)));
        if (others.length > 0) yield others;
      }
    }
  }

  async *#listed(port: OpenPort, worker: WorkerThread): AsyncIterable<readonly OpenConnection[]> {
    const list = ++this.#lastList;
    let hasMore = true;
    try {
      while (hasMore) {
        const page = await worker.ask({ kind: 'list', port: port.id, list });
        if (page === undefined || this.#ports.get(port.spec.id) !== port) return;
        hasMore = page.hasMore;
        if (page.connections.length > 0) yield page.connections;
      }
    } finally {
      if (hasMore) worker.enqueue({ kind: 'unlist', list });
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
    this.#closeAll();
  }

  /** When no worker runs any more: each wakes the others. */
  #closeAll(): void {
    this.#isShutDown = true;
    for (const fd of this.#wakeFds) close(fd);
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
      taken: this.#shareMemory.join(partsOf(spec.name).namespace),
      carriers: NONE,
      opening: undefined,
      isOpen: false,
    };
    port.worker.ports++;
    this.#descriptors.take(1);
    this.#ports.set(spec.id, port);
    this.#names.set(id, spec.name);
    return port;
  }

  async #adoptPort(state: PortState): Promise<OpenPort> {
    const { id, name, family, protocol, address, localPort, fd, backends, counters, endpointCounters, picker } = state;
    const spec = { id, name, family, protocol, address, port: localPort };
    if (this.#ports.has(id)) throw new Error('two ports have one id');
    prepareListener(fd, spec, this.#congestionControl ?? unlessDefault(fd));
    const port = this.#assign(spec, { fd, localPort }, backends);
    const counted = port.counters.resume(backends, counters, endpointCounters);
    const err = await port.worker.change({ ...openCommand(port, counted), picker });
    if (err !== undefined) throw new Error(`cannot take over ${name}: ${err}`);
    port.isOpen = true;
    return port;
  }

  *#states(): Iterable<{ readonly id: PortId; readonly state: PortState }> {
    for (const port of this.#ports.values()) {
      const { id, spec, socket, backends } = port;
      const counted = countersOf(port);
      const endpointCounters = endpointSums(counted).map((each) => [each.endpoint.name, each.counters] as const);
      const state = {
        ...spec,
        ...socket,
        backends,
        counters: sumOf(counted),
        endpointCounters: new Map(endpointCounters),
        picker: undefined,
      };
      yield { id, state };
    }
  }

  #release(port: OpenPort): void {
    port.worker.ports--;
    this.#names.delete(port.id);
    this.#shareMemory.leave(partsOf(port.spec.name).namespace);
    close(port.socket.fd);
    this.#descriptors.give(1);
  }

  /** By its number of ports: traffic is not known in advance, and moving a port would end its connections. */
  #leastLoaded(): WorkerThread {
    return this.#workers.reduce((least, worker) => (worker.ports < least.ports ? worker : least));
  }

  #others(worker: WorkerThread): readonly WorkerThread[] {
    return this.#workers.filter((each) => each !== worker);
  }

  #onBusy(id: PortId): void {
    const port = [...this.#ports.values()].find((each) => each.id === id);
    if (port?.isOpen && port.carriers.length === 0) void this.#addCarriers(port);
  }

  /** Lets the other workers carry connections of this port. */
  async #addCarriers(port: OpenPort): Promise<void> {
    port.carriers = this.#others(port.worker).map((worker) => ({
      worker,
      counters: new PortCounters(this.#counterMemory),
    }));
    await Promise.all(
      port.carriers.map(async (carrier) => {
        const err = await carrier.worker.change(carryCommand(port, carrier, carrier.counters.follow(port.backends)));
        if (err === undefined) return;
        this.#observer.listenerFailed({ name: port.spec.name, err });
        port.carriers = port.carriers.filter((each) => each !== carrier);
      }),
    );
    if (this.#ports.get(port.spec.id) === port) port.worker.send(carriersCommand(port));
  }

  #reopen(worker: WorkerThread): void {
    if (this.#clientFacts !== undefined) worker.send({ kind: 'know-clients', facts: this.#clientFacts });
    for (const port of this.#ports.values()) {
      const carrier = port.carriers.find((each) => each.worker === worker);
      if (carrier !== undefined) {
        void worker.change(carryCommand(port, carrier, carrier.counters.inherit(port.backends)));
      }
      if (port.worker !== worker) continue;
      void worker.change(openCommand(port, port.counters.inherit(port.backends))).then((err) => {
        if (err !== undefined) this.#observer.listenerFailed({ name: port.spec.name, err });
      });
      worker.send(carriersCommand(port));
    }
    // Last: what others then ask for is open.
    for (const other of this.#others(worker)) link(worker, other);
  }

  #observe({ kind, port, ...event }: NumberedEvent): void {
    const name = this.#names.get(port);
    // An event has what the observer's method of the same name takes, except for the name of the port.
    const report = this.#observer[kind] as (event: object) => void;
    if (name !== undefined) report.call(this.#observer, { name, ...event });
  }
}

/** The node's congestion control, if this listener has another: a predecessor's flags may have named one. */
function unlessDefault(fd: number): string | undefined {
  const nodes = defaultCongestionControl();
  return congestionControlOf(fd) === nodes ? undefined : nodes;
}
