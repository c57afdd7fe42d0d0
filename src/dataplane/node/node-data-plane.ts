import { networkInterfaces } from 'node:os';
import type { Clock, Random, Timer } from '../../contracts/clock.ts';
import type {
  Backends,
  DataPlane,
  DataPlaneObserver,
  DataPlaneOptions,
  ListenSpec,
  ServicePortStats,
} from '../../contracts/data-plane.ts';
import type { ServicePortName } from '../../model/service.ts';
import { Picker } from '../../picker/picker.ts';
import { listenError } from '../listen-error.ts';
import { newCounters, type PortContext, type PortListener } from './port-context.ts';
import { TcpConnection } from './tcp-connection.ts';
import { listenTcp } from './tcp-listener.ts';
import { type FlowBudget, isWildcard, listenUdp, UdpListener } from './udp-listener.ts';

/** How long an address that is new on the node may go without UDP: a reading takes well under a millisecond. */
const ADDRESS_POLL_MS = 1000;

export interface NodeDataPlaneSetup {
  readonly options: DataPlaneOptions;
  readonly observer: DataPlaneObserver;
  readonly clock: Clock;
  readonly random: Random;
  /** The node's own addresses; by default those of its interfaces that are up. */
  readonly localAddresses?: () => readonly string[];
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
  readonly #ports = new Map<ServicePortName, OpenPort>();
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
    if (this.#ports.has(spec.name)) throw listenError(spec, 'failed', 'that Service port is open already');
    const { options, observer, clock, random } = this.#setup;
    const picker = new Picker({ random, affinityMaxClients: options.affinityMaxClients });
    picker.update(backends);
    const context = { name: spec.name, picker, counters: newCounters(), options, observer, clock };
    const port: OpenPort = { spec, context, opening: Promise.resolve(0), listener: undefined };
    this.#ports.set(spec.name, port);
    port.opening = this.#listen(port);
    return port.opening;
  }

  update(name: ServicePortName, backends: Backends): void {
    const port = this.#ports.get(name);
    if (port?.context.picker.update(backends)) port.listener?.endpointsChanged();
  }

  async close(name: ServicePortName): Promise<void> {
    const port = this.#ports.get(name);
    if (port === undefined) return;
    this.#ports.delete(name);
    // Opening sees that the name is gone, and closes what it has opened.
    await port.opening.catch(() => {});
    await port.listener?.close();
  }

  stats(): Iterable<ServicePortStats> {
    const stats: ServicePortStats[] = [];
    for (const { spec, context, listener } of this.#ports.values()) {
      if (listener === undefined) continue;
      const { name, protocol } = spec;
      stats.push({ name, protocol, localPort: listener.localPort, counters: { ...context.counters } });
    }
    return stats;
  }

  async shutdown(): Promise<void> {
    this.#isShutDown = true;
    this.#addressTimer?.cancel();
    await Promise.all([...this.#ports.keys()].map((name) => this.close(name)));
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
      if (this.#ports.get(spec.name) === port) this.#ports.delete(spec.name);
      throw err;
    }
    if (this.#ports.get(spec.name) !== port) {
      await listener.close();
      throw listenError(spec, 'failed', 'it was closed while it was being opened');
    }
    port.listener = listener;
    if (listener instanceof UdpListener && isWildcard(spec.address)) this.#addressTimer ??= this.#pollAddresses();
    return listener.localPort;
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
