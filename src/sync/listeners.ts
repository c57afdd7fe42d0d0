import type { PortBook } from '../capture/port-book.ts';
import { samePortal } from '../capture/portal.ts';
import type { IpFamily } from '../model/address.ts';
import type { Portal, PortalDelta } from '../model/capture.ts';
import { type ClientAddressPolicy, type KeptAddresses, keptAddresses } from '../model/client-address.ts';
import { type Backends, type DataPlane, ListenError } from '../model/data-plane.ts';
import type { AdoptedPort } from '../model/hand-over.ts';
import { DEFAULT_SCHEDULER, type SchedulerName } from '../model/scheduler.ts';
import type { Protocol, ServicePortName } from '../model/service.ts';
import {
  type CarriedPort,
  type EndpointSet,
  type EndpointSetName,
  type ListenerId,
  listenerId,
  type ProxiedProtocol,
  type ServicePort,
  type UnservedPort,
} from '../model/service-port.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { backoffMs } from '../util/wait.ts';
import type { FlowSync } from './flow-sync.ts';
import { ServiceLog } from './service-log.ts';

/** All of one family. */
interface ListenersOptions {
  readonly family: IpFamily;
  readonly dataPlane: DataPlane;
  readonly clock: Clock;
  readonly log: Log;
  readonly ports: PortBook;
  readonly flows: Pick<FlowSync, 'release'>;
  readonly bindAddress: string;
  readonly clientAddresses: ClientAddressPolicy;
  /** Of Services that ask for none. */
  readonly scheduler: SchedulerName;
}

/** One of the listeners that a Service port has or could have. */
interface Slot {
  readonly id: ListenerId;
  readonly name: ServicePortName;
  readonly set: EndpointSetName;
}

interface Listener extends Slot {
  readonly protocol: ProxiedProtocol;
  readonly localPort: number;
}

interface Wanted {
  readonly protocol: ProxiedProtocol;
  readonly backends: Backends;
}

interface Retry {
  readonly failures: number;
  /** The last of them. */
  readonly failure: string;
  readonly timer: Timer;
}

const SETS: readonly EndpointSetName[] = ['own', 'local'];

const RETRY = { firstMs: 1_000, maxMs: 30_000 };

/** Ports in use by other programs to try in a row. */
const MAX_TRIES = 100;

/** After a local port has become free, so that those of one Service count together. */
const WAKE_MS = 100;

/** The same for every port, so that one event tells it. */
const OVER_SHARE =
  'its namespace has its share of the local ports of this node, and the rest is for others; widen --proxy-port-range';

class NoLocalPort extends Error {}

/**
 * Keeps a listener for each endpoint set of the wanted Service ports of one address family. A listener lives as long as
 * its set and protocol, with endpoints or without. Rules are installed after a listener opens and removed before it
 * closes, so no rule sends to a closed port.
 *
 * Each step compares what is wanted with what is open, so any order of changes converges.
 */
export class Listeners {
  readonly #options: ListenersOptions;
  readonly #wanted = new Map<ServicePortName, ServicePort>();
  readonly #open = new Map<ListenerId, Listener>();
  readonly #localPorts = { TCP: new Set<number>(), UDP: new Set<number>() };
  readonly #retries = new Map<ListenerId, Retry>();
  /** Those of {@link #retries} that lack a local port. */
  readonly #waiting = new Map<ListenerId, Slot>();
  #wake: Timer | undefined;
  /** Open on a port that something else needs. */
  readonly #misplaced = new Set<ListenerId>();
  /** Open and no longer wanted, until no rule sends to them. */
  readonly #retired = new Set<ListenerId>();
  /** Names whose portal may differ from the last {@link takePortalDelta}. */
  readonly #changed = new Set<ServicePortName>();
  readonly #busy = new Set<ListenerId>();
  readonly #working = new Set<Promise<void>>();
  readonly #lines: ServiceLog;
  #onPortalsChanged = () => {};
  #onUnserved = (_port: UnservedPort) => {};
  #hasNewPorts = false;
  #stopped = false;

  constructor(options: ListenersOptions) {
    this.#options = options;
    this.#lines = new ServiceLog(options.log, options.clock);
  }

  /** Calls `callback` whenever {@link takePortalDelta} has changes. */
  onPortalsChanged(callback: () => void): void {
    this.#onPortalsChanged = callback;
  }

  /** Calls `callback` when a Service port begins to wait for a local port. */
  onUnserved(callback: (port: UnservedPort) => void): void {
    this.#onUnserved = callback;
  }

  /** Takes over ports that the data plane already has. Before any other call. */
  adopt(ports: readonly AdoptedPort[]): void {
    for (const { id, name, protocol, localPort } of ports) {
      const set = this.#slot(name, 'own').id === id ? 'own' : 'local';
      this.#options.ports.adopt({ name, set, protocol }, localPort);
      this.#opened({ id, name, set, protocol, localPort });
      this.#retired.add(id);
    }
  }

  want(port: ServicePort): void {
    const { name } = port;
    const before = this.#portal(name);
    this.#wanted.set(name, port);
    for (const set of SETS) this.#reconcile(this.#slot(name, set));
    const after = this.#portal(name);
    if (after !== undefined && !(before !== undefined && samePortal(before, after))) this.#portalChanged(name);
  }

  unwant(name: ServicePortName): void {
    const before = this.#portal(name);
    this.#wanted.delete(name);
    for (const set of SETS) this.#reconcile(this.#slot(name, set));
    if (before !== undefined) this.#portalChanged(name);
  }

  /** Resolves when every current opening and closing has ended. */
  async settled(): Promise<void> {
    await Promise.all(this.#working);
  }

  /** The portals that changed since the last call. */
  takePortalDelta(): PortalDelta {
    const upserted: Portal[] = [];
    const removed: ServicePortName[] = [];
    for (const name of this.#changed) {
      const portal = this.#portal(name);
      if (portal !== undefined) upserted.push(portal);
      else removed.push(name);
    }
    this.#changed.clear();
    return { upserted, removed };
  }

  /** How many Service ports are wanted. */
  get count(): number {
    return this.#wanted.size;
  }

  get openCount(): number {
    return this.#open.size;
  }

  names(): Iterable<ServicePortName> {
    return this.#wanted.keys();
  }

  /** A wanted Service port with its listeners, open or not. */
  carried(name: ServicePortName): CarriedPort | undefined {
    const servicePort = this.#wanted.get(name);
    if (servicePort === undefined) return undefined;
    const sets = servicePort.local === undefined ? SETS.slice(0, 1) : SETS;
    return {
      servicePort,
      listeners: sets.map((set) => {
        const { id } = this.#slot(name, set);
        const failure = this.#retries.get(id)?.failure;
        const localPort = this.#localPort(name, set, servicePort);
        return { id, set, localPort, ...(failure !== undefined && { failure }) };
      }),
    };
  }

  /** Looks at all listeners. */
  ownerOf(port: number, protocol: ProxiedProtocol): ServicePortName | undefined {
    return this.#listenerOn(port, protocol)?.name;
  }

  /** The ports of open listeners; these sets change. */
  get localPorts(): Readonly<Record<ProxiedProtocol, ReadonlySet<number>>> {
    return this.#localPorts;
  }

  /** Whether {@link localPorts} has gained a port since the last call. */
  takeNewPorts(): boolean {
    const hasNewPorts = this.#hasNewPorts;
    this.#hasNewPorts = false;
    return hasNewPorts;
  }

  /** Pass them to {@link closeRetired} once rules without them are installed. */
  retired(): ListenerId[] {
    return [...this.#retired];
  }

  closeRetired(ids: readonly ListenerId[]): void {
    for (const id of ids) {
      const listener = this.#open.get(id);
      if (listener !== undefined && this.#retired.has(id)) this.#work(listener);
    }
  }

  /**
   * Moves listeners from these ports. New clients fail until rules send to the new port. That is rare: it takes a
   * NodePort that was chosen by hand from the range of local ports.
   */
  vacate(ports: readonly { readonly port: number; readonly protocol: Protocol }[]): void {
    for (const { port, protocol } of ports) {
      if (protocol === 'SCTP' || !this.#localPorts[protocol].has(port)) continue;
      const listener = this.#listenerOn(port, protocol);
      if (listener === undefined) continue;
      const { id, name: svc } = listener;
      this.#options.log.warn('A local port has become a NodePort; its Service port moves to another', { svc, port });
      this.#misplaced.add(id);
      this.#work(listener);
    }
  }

  stop(): void {
    this.#stopped = true;
    for (const id of this.#retries.keys()) this.#forgetRetry(id);
    this.#wake?.cancel();
    this.#wake = undefined;
  }

  /** Undoes {@link stop}, and opens what is wanted. */
  resume(): void {
    this.#stopped = false;
    for (const name of this.#wanted.keys()) {
      for (const set of SETS) {
        const slot = this.#slot(name, set);
        const wanted = this.#wantedAt(slot);
        if (wanted === undefined) continue;
        if (this.#misplaced.has(slot.id) || this.#open.get(slot.id)?.protocol !== wanted.protocol) this.#work(slot);
      }
    }
  }

  #listenerOn(port: number, protocol: ProxiedProtocol): Listener | undefined {
    return [...this.#open.values()].find((each) => each.localPort === port && each.protocol === protocol);
  }

  #slot(name: ServicePortName, set: EndpointSetName): Slot {
    return { id: listenerId(name, this.#options.family, set), name, set };
  }

  #wantedAt({ name, set }: Slot): Wanted | undefined {
    const port = this.#wanted.get(name);
    const endpoints: EndpointSet | undefined = set === 'own' ? port : port?.local;
    if (port === undefined || endpoints === undefined) return undefined;
    const kept = keptAddresses(port, set, this.#options.clientAddresses);
    return { protocol: port.protocol, backends: backendsOf(port, endpoints, kept, this.#options.scheduler) };
  }

  #reconcile(slot: Slot): void {
    const { id } = slot;
    const wanted = this.#wantedAt(slot);
    const listener = this.#open.get(id);
    if (wanted === undefined) {
      this.#forgetRetry(id);
      if (listener !== undefined) this.#retired.add(id);
    } else if (listener?.protocol === wanted.protocol) {
      this.#retired.delete(id);
      this.#options.dataPlane.update(id, wanted.backends);
    } else {
      this.#work(slot);
    }
  }

  #portal(name: ServicePortName): Portal | undefined {
    const servicePort = this.#wanted.get(name);
    if (servicePort === undefined) return undefined;
    const localPort = this.#localPort(name, 'own', servicePort);
    if (localPort === undefined) return undefined;
    const localSetPort = servicePort.local && this.#localPort(name, 'local', servicePort);
    return { servicePort, localPort, ...(localSetPort !== undefined && { localSetPort }) };
  }

  #localPort(name: ServicePortName, set: EndpointSetName, { protocol }: ServicePort): number | undefined {
    const listener = this.#open.get(this.#slot(name, set).id);
    return listener?.protocol === protocol ? listener.localPort : undefined;
  }

  #portalChanged(name: ServicePortName): void {
    this.#changed.add(name);
    this.#onPortalsChanged();
  }

  /** Opens or closes a listener until it is as wanted. */
  #work(slot: Slot): void {
    const { id } = slot;
    if (this.#busy.has(id) || this.#stopped) return;
    this.#busy.add(id);
    const work = this.#converge(slot).finally(() => this.#working.delete(work));
    this.#working.add(work);
  }

  async #converge(slot: Slot): Promise<void> {
    const { id } = slot;
    try {
      for (;;) {
        const wanted = this.#wantedAt(slot);
        const listener = this.#open.get(id);
        const isMisplaced = this.#misplaced.has(id) || this.#retired.has(id);
        if (listener !== undefined && (isMisplaced || listener.protocol !== wanted?.protocol)) {
          await this.#close(listener);
        } else if (listener === undefined && wanted !== undefined && !this.#stopped) {
          if (!(await this.#openOne(slot, wanted))) return;
        } else {
          return;
        }
      }
    } finally {
      // In the same turn as the last look at what is wanted: a later change starts the work again.
      this.#busy.delete(id);
    }
  }

  #opened(listener: Listener): void {
    this.#open.set(listener.id, listener);
    this.#localPorts[listener.protocol].add(listener.localPort);
    this.#hasNewPorts = true;
  }

  async #close(listener: Listener): Promise<void> {
    const { id, name, protocol, localPort } = listener;
    const { dataPlane, ports, log } = this.#options;
    this.#open.delete(id);
    this.#misplaced.delete(id);
    // A retired listener's portal is gone already; otherwise the Service port has another protocol now.
    if (!this.#retired.delete(id)) this.#portalChanged(name);
    try {
      await dataPlane.close(id);
    } catch (error) {
      log.error('Cannot close a listener; its local port stays taken', { svc: name, err: String(error) });
    }
    this.#localPorts[protocol].delete(localPort);
    ports.giveBack(listener, localPort);
    this.#wakeWaiting();
    log.v(2)?.info('Stopped listening', { svc: name, port: localPort });
  }

  /** Resolves with whether it is open; if not, schedules a retry. */
  async #openOne(slot: Slot, wanted: Wanted): Promise<boolean> {
    const { id, name } = slot;
    const { protocol } = wanted;
    const { dataPlane, log } = this.#options;
    const servicePort = this.#wanted.get(name);
    try {
      const localPort = await this.#listen(slot, wanted);
      this.#forgetRetry(id);
      this.#opened({ id, name, set: slot.set, protocol, localPort });
      // The Service port may have changed meanwhile.
      const latest = this.#wantedAt(slot);
      if (latest === undefined) this.#retired.add(id);
      else if (this.#wanted.get(name) !== servicePort) dataPlane.update(id, latest.backends);
      log.v(1)?.info('Proxying for a Service port', { svc: name, protocol, port: localPort });
      this.#portalChanged(name);
      return true;
    } catch (error) {
      this.#retryLater(slot, error);
      return false;
    }
  }

  async #listen({ id, name, set }: Slot, { protocol, backends }: Wanted): Promise<number> {
    const { dataPlane, ports, flows, family, bindAddress: address } = this.#options;
    const owner = { name, set, protocol };
    if (!ports.isWithinShare(owner)) throw new NoLocalPort(OVER_SHARE);
    const tried = new Set<number>();
    while (tried.size < MAX_TRIES) {
      const taken = ports.take(owner, tried);
      if (taken === undefined) break;
      const { port } = taken;
      try {
        if (taken.isReclaimed) await flows.release(protocol, port);
        return await dataPlane.open({ id, name, family, protocol, address, port }, backends);
      } catch (error) {
        ports.giveBack(owner, port);
        if (!(error instanceof ListenError && error.code === 'address-in-use')) throw error;
        tried.add(port);
      }
    }
    throw new NoLocalPort(
      `no local port is free: of the ${ports.size} there are, ${tried.size} were tried and are in use by other programs, ` +
        `${ports.reserved} are reserved for them (net.ipv4.ip_local_reserved_ports), and the rest are in use by other ` +
        'Service ports; widen --proxy-port-range, or reserve fewer and restart',
    );
  }

  #retryLater(slot: Slot, error: unknown): void {
    const { id, name } = slot;
    if (this.#wantedAt(slot) === undefined || this.#stopped) return;
    const before = this.#retries.get(id);
    before?.timer.cancel();
    const failures = (before?.failures ?? 0) + 1;
    const retryInMs = backoffMs(failures, RETRY);
    const { clock } = this.#options;
    const failure = messageOf(error);
    if (error instanceof NoLocalPort) {
      this.#waiting.set(id, slot);
      if (failures === 1) this.#onUnserved({ name, reason: failure });
    }
    this.#lines.error(name, 'Cannot listen for a Service port; retrying', { err: failure, retryInMs });
    const timer = clock.after(retryInMs, () => this.#work(slot));
    this.#retries.set(id, { failures, failure, timer });
  }

  /** A local port is free again: tries again at once where one was lacking. */
  #wakeWaiting(): void {
    if (this.#waiting.size === 0) return;
    this.#wake ??= this.#options.clock.after(WAKE_MS, () => {
      this.#wake = undefined;
      for (const slot of [...this.#waiting.values()]) {
        const protocol = this.#wanted.get(slot.name)?.protocol;
        if (protocol !== undefined && this.#options.ports.isWithinShare({ ...slot, protocol })) this.#work(slot);
      }
    });
  }

  #forgetRetry(id: ListenerId): void {
    this.#retries.get(id)?.timer.cancel();
    this.#retries.delete(id);
    this.#waiting.delete(id);
  }
}

function backendsOf(
  { protocol, affinity, options }: ServicePort,
  { endpoints, draining }: EndpointSet,
  kept: KeptAddresses | undefined,
  scheduler: SchedulerName,
): Backends {
  const proxyProtocol = protocol === 'TCP' ? options?.proxyProtocol : undefined;
  const udpReplayMs = protocol === 'UDP' ? options?.udpReplayMs : undefined;
  const chosen = options?.scheduler ?? scheduler;
  const slowStartMs = options?.slowStartMs;
  return {
    endpoints,
    ...(draining !== undefined && { draining }),
    affinity,
    ...(kept !== undefined && { keptAddresses: kept }),
    ...(proxyProtocol !== undefined && { proxyProtocol }),
    ...(udpReplayMs !== undefined && { udpReplayMs }),
    ...(chosen !== DEFAULT_SCHEDULER && { scheduler: chosen }),
    ...(slowStartMs !== undefined && { slowStartMs }),
  };
}
