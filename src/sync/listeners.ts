import type { PortBook } from '../capture/port-book.ts';
import { samePortal } from '../capture/portal.ts';
import type { IpFamily } from '../model/address.ts';
import type { Portal, PortalDelta } from '../model/capture.ts';
import { type ClientAddressPolicy, type KeptAddresses, keptAddresses } from '../model/client-address.ts';
import { type Backends, type DataPlane, ListenError } from '../model/data-plane.ts';
import type { AdoptedPort } from '../model/hand-over.ts';
import { DEFAULT_SCHEDULER, type SchedulerName } from '../model/scheduler.ts';
import { type Protocol, portOptions, type ServicePortName } from '../model/service.ts';
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
import { waitingTerms } from '../model/waiting.ts';
import type { Clock, Timer } from '../util/clock.ts';
import { type Found, FoundError } from '../util/found.ts';
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
  state: State;
  /** It is being opened or closed. */
  isBusy: boolean;
}

type State =
  | { readonly kind: 'closed'; readonly retry?: Retry }
  | {
      readonly kind: 'open';
      readonly protocol: ProxiedProtocol;
      readonly localPort: number;
      /** `retired`: not wanted, until no rule sends to it. `misplaced`: something else needs its port. */
      leaving: 'retired' | 'misplaced' | undefined;
    };

/** A Service port, from when it is wanted until its listeners are closed. */
interface Entry {
  servicePort: ServicePort | undefined;
  readonly slots: readonly Slot[];
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
const OVER_SHARE: Found = {
  found: 'its namespace has its share of the local ports of this node, and the rest is for others',
  advice: 'widen --proxy-port-range',
};

class NoLocalPort extends FoundError {}

/**
 * Keeps a listener for each endpoint set of the wanted Service ports of one address family. A listener lives as long as
 * its set and protocol, with endpoints or without. Rules are installed after a listener opens and removed before it
 * closes, so no rule sends to a closed port.
 *
 * Each step compares what is wanted with what is open, so any order of changes converges.
 */
export class Listeners {
  readonly #options: ListenersOptions;
  readonly #entries = new Map<ServicePortName, Entry>();
  readonly #localPorts = { TCP: new Set<number>(), UDP: new Set<number>() };
  #wake: Timer | undefined;
  /** Names whose portal may differ from the last {@link takePortalDelta}. */
  readonly #changed = new Set<ServicePortName>();
  readonly #working = new Set<Promise<void>>();
  /** Those that wait for a local port. */
  readonly #lacking = new Set<Slot>();
  /** Those that are `retired`, so that nobody has to look for them. */
  readonly #retired = new Set<Slot>();
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
      const slot = this.#entry(name).slots.find((each) => each.id === id);
      if (slot === undefined) continue;
      this.#options.ports.adopt({ name, set: slot.set, protocol }, localPort);
      this.#opened(slot, { kind: 'open', protocol, localPort, leaving: 'retired' });
    }
  }

  want(port: ServicePort): void {
    const entry = this.#entry(port.name);
    const before = portalOf(entry);
    entry.servicePort = port;
    for (const slot of entry.slots) this.#reconcile(slot);
    const after = portalOf(entry);
    if (after !== undefined && !(before !== undefined && samePortal(before, after))) this.#portalChanged(port.name);
  }

  unwant(name: ServicePortName): void {
    const entry = this.#entry(name);
    const before = portalOf(entry);
    entry.servicePort = undefined;
    for (const slot of entry.slots) this.#reconcile(slot);
    this.#forgetIfGone(name);
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
      const portal = portalOf(this.#entries.get(name));
      if (portal !== undefined) upserted.push(portal);
      else removed.push(name);
    }
    this.#changed.clear();
    return { upserted, removed };
  }

  /** How many Service ports are wanted. */
  get count(): number {
    let count = 0;
    for (const { servicePort } of this.#entries.values()) if (servicePort !== undefined) count += 1;
    return count;
  }

  get openCount(): number {
    return this.#localPorts.TCP.size + this.#localPorts.UDP.size;
  }

  *names(): Generator<ServicePortName> {
    for (const [name, { servicePort }] of this.#entries) if (servicePort !== undefined) yield name;
  }

  /** A wanted Service port with its listeners, open or not. */
  carried(name: ServicePortName): CarriedPort | undefined {
    const { servicePort, slots = [] } = this.#entries.get(name) ?? {};
    if (servicePort === undefined) return undefined;
    const used = slots.filter(({ set }) => set === 'own' || servicePort.local !== undefined);
    return {
      servicePort,
      listeners: used.map((slot) => {
        const { id, set, state } = slot;
        const failure = state.kind === 'closed' ? state.retry?.failure : undefined;
        return { id, set, localPort: localPortOf(slot, servicePort), ...(failure !== undefined && { failure }) };
      }),
    };
  }

  /** Looks at all listeners. */
  ownerOf(port: number, protocol: ProxiedProtocol): ServicePortName | undefined {
    return this.#slotOn(port, protocol)?.name;
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
  retired(): readonly Slot[] {
    return [...this.#retired];
  }

  closeRetired(slots: readonly Slot[]): void {
    for (const slot of slots) if (isRetired(slot)) this.#work(slot);
  }

  /**
   * Moves listeners from these ports. New clients fail until rules send to the new port. That is rare: it takes a
   * NodePort that was chosen by hand from the range of local ports.
   */
  vacate(ports: readonly { readonly port: number; readonly protocol: Protocol }[]): void {
    for (const { port, protocol } of ports) {
      if (protocol === 'SCTP' || !this.#localPorts[protocol].has(port)) continue;
      const slot = this.#slotOn(port, protocol);
      if (slot?.state.kind !== 'open') continue;
      const { name: svc, state } = slot;
      this.#options.log.warn('A local port has become a NodePort; its Service port moves to another', { svc, port });
      state.leaving ??= 'misplaced';
      this.#work(slot);
    }
  }

  stop(): void {
    this.#stopped = true;
    for (const slot of this.#slots()) this.#forgetRetry(slot);
    this.#wake?.cancel();
    this.#wake = undefined;
  }

  /** Undoes {@link stop}, and opens what is wanted. */
  resume(): void {
    this.#stopped = false;
    for (const slot of this.#slots()) {
      const wanted = this.#wantedAt(slot);
      if (wanted !== undefined && !isServing(slot, wanted.protocol)) this.#work(slot);
    }
  }

  *#slots(): Generator<Slot> {
    for (const { slots } of this.#entries.values()) yield* slots;
  }

  #slotOn(port: number, protocol: ProxiedProtocol): Slot | undefined {
    for (const slot of this.#slots()) {
      const { state } = slot;
      if (state.kind === 'open' && state.localPort === port && state.protocol === protocol) return slot;
    }
    return undefined;
  }

  #entry(name: ServicePortName): Entry {
    const known = this.#entries.get(name);
    if (known !== undefined) return known;
    const slots = SETS.map((set): Slot => {
      return { id: listenerId(name, this.#options.family, set), name, set, state: { kind: 'closed' }, isBusy: false };
    });
    const entry: Entry = { servicePort: undefined, slots };
    this.#entries.set(name, entry);
    return entry;
  }

  #forgetIfGone(name: ServicePortName): void {
    const entry = this.#entries.get(name);
    const isClosed = ({ state, isBusy }: Slot) => state.kind === 'closed' && !isBusy;
    if (entry?.servicePort === undefined && entry?.slots.every(isClosed)) this.#entries.delete(name);
  }

  #wantedAt({ name, set }: Slot): Wanted | undefined {
    const port = this.#entries.get(name)?.servicePort;
    const endpoints: EndpointSet | undefined = set === 'own' ? port : port?.local;
    if (port === undefined || endpoints === undefined) return undefined;
    const kept = keptAddresses(port, set, this.#options.clientAddresses);
    return { protocol: port.protocol, backends: backendsOf(port, endpoints, kept, this.#options.scheduler) };
  }

  #reconcile(slot: Slot): void {
    const { id, state } = slot;
    const wanted = this.#wantedAt(slot);
    if (wanted === undefined) {
      this.#forgetRetry(slot);
      if (state.kind === 'open') this.#retire(slot, state);
    } else if (state.kind === 'open' && state.protocol === wanted.protocol) {
      if (state.leaving === 'retired') state.leaving = undefined;
      this.#retired.delete(slot);
      this.#options.dataPlane.update(id, wanted.backends);
    } else {
      this.#work(slot);
    }
  }

  #retire(slot: Slot, state: Open): void {
    state.leaving = 'retired';
    this.#retired.add(slot);
  }

  #portalChanged(name: ServicePortName): void {
    this.#changed.add(name);
    this.#onPortalsChanged();
  }

  /** Opens or closes a listener until it is as wanted. */
  #work(slot: Slot): void {
    if (slot.isBusy || this.#stopped) return;
    slot.isBusy = true;
    const work = this.#converge(slot).finally(() => this.#working.delete(work));
    this.#working.add(work);
  }

  async #converge(slot: Slot): Promise<void> {
    try {
      for (;;) {
        const wanted = this.#wantedAt(slot);
        const { state } = slot;
        if (state.kind === 'open' && !isServing(slot, wanted?.protocol)) {
          await this.#close(slot, state);
        } else if (state.kind === 'closed' && wanted !== undefined && !this.#stopped) {
          if (!(await this.#openOne(slot, wanted))) return;
        } else {
          return;
        }
      }
    } finally {
      // In the same turn as the last look at what is wanted: a later change starts the work again.
      slot.isBusy = false;
      this.#forgetIfGone(slot.name);
    }
  }

  #opened(slot: Slot, state: Open): void {
    slot.state = state;
    if (state.leaving === 'retired') this.#retired.add(slot);
    this.#localPorts[state.protocol].add(state.localPort);
    this.#hasNewPorts = true;
  }

  async #close(slot: Slot, { protocol, localPort, leaving }: Open): Promise<void> {
    const { id, name, set } = slot;
    const { dataPlane, ports, log } = this.#options;
    slot.state = CLOSED;
    this.#retired.delete(slot);
    // A retired listener's portal is gone already; otherwise the Service port has another protocol now.
    if (leaving !== 'retired') this.#portalChanged(name);
    try {
      await dataPlane.close(id);
    } catch (error) {
      log.error('Cannot close a listener; its local port stays taken', { svc: name, err: String(error) });
    }
    this.#localPorts[protocol].delete(localPort);
    ports.giveBack({ name, set, protocol }, localPort);
    this.#wakeWaiting();
    log.v(2)?.info('Stopped listening', { svc: name, port: localPort });
  }

  /** Resolves with whether it is open; if not, schedules a retry. */
  async #openOne(slot: Slot, wanted: Wanted): Promise<boolean> {
    const { id, name } = slot;
    const { protocol } = wanted;
    const { dataPlane, log } = this.#options;
    const servicePort = this.#entries.get(name)?.servicePort;
    try {
      const localPort = await this.#listen(slot, wanted);
      this.#forgetRetry(slot);
      // The Service port may have changed meanwhile.
      const latest = this.#wantedAt(slot);
      this.#opened(slot, { kind: 'open', protocol, localPort, leaving: latest === undefined ? 'retired' : undefined });
      if (latest !== undefined && this.#entries.get(name)?.servicePort !== servicePort) {
        dataPlane.update(id, latest.backends);
      }
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
    throw new NoLocalPort({
      found:
        `no local port is free: of the ${ports.size} there are, ${tried.size} were tried and are in use by other ` +
        `programs, ${ports.reserved} are reserved for them (net.ipv4.ip_local_reserved_ports), and the rest are in use ` +
        'by other Service ports',
      advice: 'widen --proxy-port-range, or reserve fewer and restart',
    });
  }

  #retryLater(slot: Slot, error: unknown): void {
    const { name, state } = slot;
    if (state.kind === 'open' || this.#wantedAt(slot) === undefined || this.#stopped) return;
    state.retry?.timer.cancel();
    const failures = (state.retry?.failures ?? 0) + 1;
    const retryInMs = backoffMs(failures, RETRY);
    const { clock } = this.#options;
    const failure = messageOf(error);
    const lacksPort = error instanceof NoLocalPort;
    if (lacksPort && failures === 1) this.#onUnserved({ name, ...error.why });
    this.#lines.error(name, 'Cannot listen for a Service port; retrying', { err: failure, retryInMs });
    const timer = clock.after(retryInMs, () => this.#work(slot));
    if (lacksPort) this.#lacking.add(slot);
    else this.#lacking.delete(slot);
    slot.state = { kind: 'closed', retry: { failures, failure, timer } };
  }

  #forgetRetry(slot: Slot): void {
    this.#lacking.delete(slot);
    if (slot.state.kind !== 'closed' || slot.state.retry === undefined) return;
    slot.state.retry.timer.cancel();
    slot.state = CLOSED;
  }

  /** A local port is free again: tries again at once where one was lacking. */
  #wakeWaiting(): void {
    this.#wake ??= this.#options.clock.after(WAKE_MS, () => {
      this.#wake = undefined;
      for (const slot of this.#lacking) {
        const { name, set } = slot;
        const protocol = this.#entries.get(name)?.servicePort?.protocol;
        if (protocol !== undefined && this.#options.ports.isWithinShare({ name, set, protocol })) this.#work(slot);
      }
    });
  }
}

type Open = Extract<State, { kind: 'open' }>;

const CLOSED: State = { kind: 'closed' };

/** Open for this protocol, and to stay. */
function isServing({ state }: Slot, protocol: ProxiedProtocol | undefined): boolean {
  return state.kind === 'open' && state.protocol === protocol && state.leaving === undefined;
}

function isRetired({ state }: Slot): boolean {
  return state.kind === 'open' && state.leaving === 'retired';
}

function localPortOf({ state }: Slot, { protocol }: ServicePort): number | undefined {
  return state.kind === 'open' && state.protocol === protocol ? state.localPort : undefined;
}

/** `undefined` while the listener of its own set is not open. */
function portalOf({ servicePort, slots }: Entry = { servicePort: undefined, slots: [] }): Portal | undefined {
  if (servicePort === undefined) return undefined;
  const [localPort, ofLocal] = slots.map((slot) => localPortOf(slot, servicePort));
  if (localPort === undefined) return undefined;
  const localSetPort = servicePort.local && ofLocal;
  return { servicePort, localPort, ...(localSetPort !== undefined && { localSetPort }) };
}

function backendsOf(
  port: ServicePort,
  { endpoints, draining }: EndpointSet,
  kept: KeptAddresses | undefined,
  nodesScheduler: SchedulerName,
): Backends {
  const { protocol, affinity, options = {} } = port;
  const { scheduler = nodesScheduler } = options;
  const waiting = waitingTerms(port);
  return {
    endpoints,
    ...(draining !== undefined && { draining }),
    affinity,
    ...(kept !== undefined && { keptAddresses: kept }),
    ...(scheduler !== DEFAULT_SCHEDULER && { scheduler }),
    ...(waiting !== undefined && { waiting }),
    ...portOptions(options, protocol),
  };
}
