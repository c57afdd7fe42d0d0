import { networkInterfaces } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import { type Address, isWildcard } from '../../model/address.ts';
import type { ClientFacts } from '../../model/client-address.ts';
import type { ConnectionLogSink } from '../../model/connection-log.ts';
import type { Backends, DataPlane, ListenerStats, ListenSpec, OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { ListenerId } from '../../model/service-port.ts';
import type { Timer } from '../../util/clock.ts';
import { countersOf } from '../core/target.ts';
import { listenError } from '../errors.ts';
import type { Keeper } from './keeper.ts';
import type { KernelSockets } from './kernel-sockets.ts';
import { type NodeDataPlaneSetup, Port, Shared } from './port.ts';
import { TcpListener } from './tcp-listener.ts';
import { UdpListener } from './udp-listener.ts';

export type { NodeDataPlaneSetup } from './port.ts';

/** A new address of the node gets no UDP for at most this long. A reading takes well under a millisecond. */
const ADDRESS_POLL_MS = 1000;

/** Describing them takes well under a millisecond. */
const CONNECTIONS_PER_PAGE = 256;

/** Without them the engine works, but cannot ask the kernel about a socket that Node does not read. */
export async function loadKernelSockets(): Promise<KernelSockets | undefined> {
  try {
    return (await import('./kernel-sockets.ts')).kernelSockets;
  } catch {
    // koffi's addon does not load here, which may be why this engine runs.
    return undefined;
  }
}

/** What makes endpoints see clients by their own address. `undefined` where libc cannot be called. */
export async function loadKeeper(options: ConstructorParameters<typeof Keeper>[0]): Promise<Keeper | undefined> {
  try {
    const { Keeper } = await import('./keeper.ts');
    return new Keeper(options);
  } catch {
    return undefined;
  }
}

/** The portable engine, on `net` and `dgram` alone: complete, and the reference for any faster one. */
export function createNodeDataPlane(setup: NodeDataPlaneSetup): DataPlane {
  return new NodeDataPlane(setup);
}

interface OpenPort {
  readonly port: Port;
  /** Settles when opening has come to an end. */
  readonly opening: Promise<number>;
  /** Set once open. */
  listener: TcpListener | UdpListener | undefined;
}

class NodeDataPlane implements DataPlane {
  readonly #setup: NodeDataPlaneSetup;
  readonly #open = new Map<ListenerId, OpenPort>();
  readonly #shared: Shared;
  #addressTimer: Timer | undefined;
  #isShutDown = false;

  constructor(setup: NodeDataPlaneSetup) {
    this.#setup = setup;
    this.#shared = new Shared(setup);
  }

  async open(spec: ListenSpec, backends: Backends): Promise<number> {
    if (this.#isShutDown) throw listenError(spec, 'failed', 'the data plane has been shut down');
    if (this.#open.has(spec.id)) throw listenError(spec, 'failed', 'that listener is open already');
    const port = new Port(spec, backends, this.#setup, this.#shared);
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    const entry: OpenPort = { port, opening: promise, listener: undefined };
    this.#open.set(spec.id, entry);
    this.#listen(entry).then(resolve, reject);
    return promise;
  }

  update(id: ListenerId, backends: Backends): void {
    const { port, listener } = this.#open.get(id) ?? {};
    port?.update(backends);
    if (listener instanceof UdpListener) listener.endpointsChanged();
  }

  knowClients(facts: ClientFacts): void {
    this.#setup.keeper?.know(facts);
  }

  async close(id: ListenerId): Promise<void> {
    const entry = this.#open.get(id);
    if (entry === undefined) return;
    this.#open.delete(id);
    // Opening sees that the id is gone, and closes what it has opened.
    await entry.opening.catch(() => {});
    entry.port.forgetClients();
    entry.listener?.close();
    entry.port.leave();
  }

  *stats(): Iterable<ListenerStats> {
    for (const id of this.#open.keys()) {
      const stats = this.statsOf(id);
      if (stats !== undefined) yield stats;
    }
  }

  statsOf(id: ListenerId): ListenerStats | undefined {
    const { port, listener } = this.#open.get(id) ?? {};
    if (port === undefined || listener === undefined) return undefined;
    const { name, family, protocol } = port.spec;
    const counters = countersOf(port.counters);
    return { id, name, family, protocol, localPort: listener.localPort, counters, endpoints: port.endpointStats() };
  }

  async *connections(id: ListenerId): AsyncIterable<readonly OpenConnection[]> {
    const entry = this.#open.get(id);
    const shown = [...(entry?.port.shown() ?? [])];
    for (let from = 0; from < shown.length; from += CONNECTIONS_PER_PAGE) {
      if (this.#open.get(id) !== entry) return;
      const page = shown.slice(from, from + CONNECTIONS_PER_PAGE).flatMap((each) => each.describe() ?? []);
      if (page.length > 0) yield page;
      await setImmediate();
    }
  }

  logConnections(sink: ConnectionLogSink | undefined): void {
    this.#shared.logSink = sink;
  }

  async nextPick(id: ListenerId, client: Address): Promise<Endpoint | undefined> {
    const { port, listener } = this.#open.get(id) ?? {};
    return listener && port?.picker.peek(client, this.#setup.clock.now())?.endpoint;
  }

  async shutdown(): Promise<void> {
    this.#isShutDown = true;
    this.#addressTimer?.cancel();
    await Promise.all([...this.#open.keys()].map((id) => this.close(id)));
    const { busyPorts } = this.#shared;
    for (const port of busyPorts) for (const session of port.sessions) session.cut('proxy-shutdown');
    // The last events of a socket come in a later turn.
    while (busyPorts.size > 0) await setImmediate();
  }

  async #listen(entry: OpenPort): Promise<number> {
    const { port } = entry;
    const { spec } = port;
    try {
      const listener = spec.protocol === 'TCP' ? await TcpListener.open(port) : await this.#listenUdp(port);
      if (this.#open.get(spec.id) !== entry) {
        listener.close();
        throw listenError(spec, 'failed', 'it was closed while it was being opened');
      }
      entry.listener = listener;
      return listener.localPort;
    } catch (err) {
      if (this.#open.get(spec.id) === entry) {
        this.#open.delete(spec.id);
        port.leave();
      }
      throw err;
    }
  }

  async #listenUdp(port: Port): Promise<UdpListener> {
    const listener = new UdpListener(port);
    await listener.listen(this.#setup.localAddresses ?? interfaceAddresses);
    const isPolled = isWildcard(port.spec.address) && !this.#isShutDown;
    if (isPolled) this.#addressTimer ??= this.#pollAddresses();
    return listener;
  }

  /** Polled, because Node cannot subscribe to the kernel's address events (rtnetlink). */
  #pollAddresses(): Timer {
    return this.#setup.clock.after(ADDRESS_POLL_MS, () => {
      this.#addressTimer = this.#pollAddresses();
      let addresses: readonly string[];
      try {
        addresses = (this.#setup.localAddresses ?? interfaceAddresses)();
      } catch {
        // Out of descriptors, most likely: the known addresses stay until a reading succeeds.
        return;
      }
      for (const { listener } of this.#open.values()) {
        if (listener instanceof UdpListener) listener.addressesChanged(addresses);
      }
    });
  }
}

function interfaceAddresses(): readonly string[] {
  // A link-local address needs a zone to be bound, and no client of a Service has one.
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .map(({ address }) => address)
    .filter((address) => !address.startsWith('fe80:'));
}
