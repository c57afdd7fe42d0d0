import { networkInterfaces } from 'node:os';
import { type Address, isWildcard } from '../../model/address.ts';
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
import type { ListenerId } from '../../model/service-port.ts';
import { Picker } from '../../services/picker.ts';
import type { Clock, Random, Timer } from '../../util/clock.ts';
import { listenError } from '../listen-error.ts';
import { EndpointCounters } from './endpoint-counters.ts';
import { inPieces } from './in-pieces.ts';
import { newCounters } from './new-counters.ts';
import type { KernelSockets, OpenSocket, PortContext, PortListener } from './port-context.ts';
import { TcpConnection } from './tcp-connection.ts';
import { TcpDrain } from './tcp-drain.ts';
import { listenTcp } from './tcp-listener.ts';
import { type FlowBudget, listenUdp, UdpListener } from './udp-listener.ts';

/** How long an address that is new on the node may go without UDP: a reading takes well under a millisecond. */
const ADDRESS_POLL_MS = 1000;

export interface NodeDataPlaneSetup {
  readonly options: DataPlaneOptions;
  readonly observer: DataPlaneObserver;
  readonly clock: Clock;
  readonly random: Random;
  /** See {@link loadKernelSockets}. */
  readonly kernel?: KernelSockets | undefined;
  /** The node's own addresses; by default those of its interfaces that are up. */
  readonly localAddresses?: () => readonly string[];
  /** How sockets towards endpoints are made; by default as Node does, which cannot mark them. */
  readonly openSocket?: OpenSocket;
}

/** Without them the engine works all the same, but for a few things that only the kernel tells. */
export async function loadKernelSockets(): Promise<KernelSockets | undefined> {
  try {
    return (await import('./kernel-sockets.ts')).kernelSockets;
  } catch {
    // koffi's addon does not load here, which may be why this engine runs.
    return undefined;
  }
}

/** The portable engine, on `net` and `dgram` alone: complete, and the reference for any faster one. */
export function createNodeDataPlane(setup: NodeDataPlaneSetup): DataPlane {
  return new NodeDataPlane(setup);
}

interface OpenPort {
  readonly spec: ListenSpec;
  readonly context: PortContext;
  /** Settles when opening has come to an end. */
  opening: Promise<number>;
  /** Set once open. */
  listener: PortListener | undefined;
}

class NodeDataPlane implements DataPlane {
  readonly #setup: NodeDataPlaneSetup;
  readonly #localAddresses: () => readonly string[];
  readonly #budget: FlowBudget;
  readonly #ports = new Map<ListenerId, OpenPort>();
  /** Of closed Service ports, too. */
  readonly #connections = new Set<TcpConnection>();
  #addressTimer: Timer | undefined;
  #isShutDown = false;
  #onNoConnections = (): void => {};

  constructor(setup: NodeDataPlaneSetup) {
    this.#setup = setup;
    this.#localAddresses = setup.localAddresses ?? interfaceAddresses;
    this.#budget = { active: 0, max: setup.options.udpMaxFlows };
  }

  async open(spec: ListenSpec, backends: Backends): Promise<number> {
    if (this.#isShutDown) throw listenError(spec, 'failed', 'the data plane has been shut down');
    if (this.#ports.has(spec.id)) throw listenError(spec, 'failed', 'that listener is open already');
    const { options, observer, clock, kernel, random, openSocket } = this.#setup;
    const picker = new Picker({ random, affinityMaxClients: options.affinityMaxClients });
    picker.update(backends);
    const drain = spec.protocol === 'TCP' ? this.#drain() : undefined;
    drain?.update(backends);
    const endpoints = new EndpointCounters();
    endpoints.follow(backends);
    const shared = { options, observer, clock, kernel, openSocket };
    const context = { ...shared, name: spec.name, picker, counters: newCounters(), endpoints, drain };
    const port: OpenPort = { spec, context, opening: Promise.resolve(0), listener: undefined };
    this.#ports.set(spec.id, port);
    port.opening = this.#listen(port);
    return port.opening;
  }

  update(id: ListenerId, backends: Backends): void {
    const port = this.#ports.get(id);
    if (port === undefined) return;
    port.context.drain?.update(backends);
    port.context.endpoints.follow(backends);
    port.context.picker.update(backends);
    port.listener?.endpointsChanged();
  }

  async close(id: ListenerId): Promise<void> {
    const port = this.#ports.get(id);
    if (port === undefined) return;
    this.#ports.delete(id);
    // Opening sees that the id is gone, and closes what it has opened.
    await port.opening.catch(() => {});
    await port.listener?.close();
  }

  *stats(): Iterable<ListenerStats> {
    for (const id of this.#ports.keys()) {
      const stats = this.statsOf(id);
      if (stats !== undefined) yield stats;
    }
  }

  statsOf(id: ListenerId): ListenerStats | undefined {
    const { spec, context, listener } = this.#ports.get(id) ?? {};
    if (spec === undefined || context === undefined || listener === undefined) return undefined;
    const { name, family, protocol } = spec;
    const { localPort } = listener;
    let endpoints: ListenerStats['endpoints'];
    return {
      ...{ id, name, family, protocol, localPort },
      counters: { ...context.counters },
      // Whoever goes through thousands of listeners seldom looks at each endpoint.
      get endpoints() {
        endpoints ??= context.endpoints.read();
        return endpoints;
      },
    };
  }

  connections(id: ListenerId): AsyncIterable<readonly OpenConnection[]> {
    return inPieces(this.#connectionsOf(id));
  }

  async nextPick(id: ListenerId, client: Address): Promise<Endpoint | undefined> {
    const { context, listener } = this.#ports.get(id) ?? {};
    return listener === undefined ? undefined : context?.picker.peek(client, this.#setup.clock.now());
  }

  async shutdown(): Promise<void> {
    this.#isShutDown = true;
    this.#addressTimer?.cancel();
    await Promise.all([...this.#ports.keys()].map((id) => this.close(id)));
    if (this.#connections.size === 0) return;
    const over = new Promise<void>((resolve) => {
      this.#onNoConnections = resolve;
    });
    for (const connection of this.#connections) connection.cut();
    await over;
  }

  async #listen(port: OpenPort): Promise<number> {
    const { spec, context } = port;
    let listener: PortListener;
    try {
      listener =
        spec.protocol === 'TCP'
          ? await listenTcp(spec, context, (client) => this.#accept(client, context))
          : await listenUdp(spec, context, { budget: this.#budget, localAddresses: this.#localAddresses });
    } catch (err) {
      if (this.#ports.get(spec.id) === port) this.#ports.delete(spec.id);
      throw err;
    }
    if (this.#ports.get(spec.id) !== port) {
      await listener.close();
      throw listenError(spec, 'failed', 'it was closed while it was being opened');
    }
    port.listener = listener;
    if (listener instanceof UdpListener && isWildcard(spec.address)) this.#addressTimer ??= this.#pollAddresses();
    return listener.localPort;
  }

  /** `undefined` where connections may outlive their endpoint for ever. */
  #drain(): TcpDrain | undefined {
    const { options, clock } = this.#setup;
    if (options.endpointDrainTimeoutMs === 0) return undefined;
    const drain: TcpDrain = new TcpDrain({
      clock,
      timeoutMs: options.endpointDrainTimeoutMs,
      onGone: (names) => {
        for (const connection of this.#connections) {
          const { port, endpoint } = connection;
          if (port.drain === drain && endpoint !== undefined && names.has(endpointName(endpoint))) connection.cut();
        }
      },
    });
    return drain;
  }

  /** With `undefined` for each that was looked at in vain. */
  *#connectionsOf(id: ListenerId): Iterable<OpenConnection | undefined> {
    const port = this.#ports.get(id);
    if (port?.listener === undefined) return;
    if (port.listener instanceof UdpListener) {
      yield* port.listener.flows();
      return;
    }
    // What is accepted later comes last, and does not make it any longer.
    let left = this.#connections.size;
    for (const connection of this.#connections) {
      if (left-- === 0 || this.#ports.get(id) !== port) return;
      yield connection.port === port.context ? connection.describe() : undefined;
    }
  }

  #accept(client: ConstructorParameters<typeof TcpConnection>[0], context: PortContext): void {
    const connection = new TcpConnection(client, context, () => {
      this.#connections.delete(connection);
      if (this.#connections.size === 0) this.#onNoConnections();
    });
    this.#connections.add(connection);
    connection.start();
  }

  /** Polled, for Node cannot subscribe to the kernel's address events (rtnetlink). */
  #pollAddresses(): Timer {
    return this.#setup.clock.after(ADDRESS_POLL_MS, () => {
      this.#addressTimer = this.#pollAddresses();
      let addresses: readonly string[];
      try {
        addresses = this.#localAddresses();
      } catch {
        // Out of descriptors, most likely: what is known holds until a reading succeeds.
        return;
      }
      for (const { spec, listener } of this.#ports.values()) {
        if (listener instanceof UdpListener && isWildcard(spec.address)) listener.follow(addresses);
      }
    });
  }
}

function interfaceAddresses(): readonly string[] {
  // Link-local addresses need a zone to be bound, and no client of a Service has one.
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .map(({ address }) => address)
    .filter((address) => !address.startsWith('fe80:'));
}
