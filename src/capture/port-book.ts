import type { PortRange } from '../model/address.ts';
import type { InstalledPort, Portal, ServedSet } from '../model/capture.ts';
import { partsOf, type ServicePortName } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import type { Clock, Random } from '../util/clock.ts';
import { mayTakeMore } from '../util/fair-share.ts';
import type { RetiredPort, RetiredPorts } from './method.ts';
import { DROP_PORT, localPortsOf, REJECT_PORT } from './portal.ts';

export interface PortBookOptions {
  readonly range: PortRange;
  /** Ports of the range that an administrator keeps for other programs. */
  readonly reserved: ReadonlySet<number>;
  /** Part of the range: for when no other port is free. */
  readonly leftForLast?: PortRange;
  /** By another program, or by the node for a Service. */
  readonly isNeeded?: (port: number, protocol: ProxiedProtocol) => boolean;
  readonly clock: Clock;
  readonly random: Random;
}

/** The listener that has or had a local port. TCP and UDP have ports of their own. */
export interface PortOwner extends ServedSet {
  readonly protocol: ProxiedProtocol;
}

/** A port to try. */
interface TakenPort {
  readonly port: number;
  /** Another listener had it until recently: conntrack may still send clients of that one here. */
  readonly isReclaimed: boolean;
}

/**
 * How long other Services do not get a retired local port. Conntrack keeps UDP flows 120 s after their last packet
 * (`nf_conntrack_udp_timeout_stream`), and closed connections for at most 120 s (`nf_conntrack_tcp_timeout_time_wait`).
 * An open connection without a peer sends within 300 s (`nf_conntrack_tcp_timeout_max_retrans`) or the port resets it.
 */
export const RETIRED_FOR_MS = 300_000;

/** In the kernel: enough for 13 Services that go every second, and less than 2 MB of its memory. */
export const MAX_RETIRED = 4096;

/**
 * Never given: the targets of refused traffic, and the ports of programs of a Kubernetes node ("Ports and Protocols" of
 * its documentation, and defaults of kubelet and kube-proxy), which are free while a program restarts.
 */
const EXCLUDED: ReadonlySet<number> = new Set([
  ...[REJECT_PORT, DROP_PORT],
  ...[2_379, 2_380, 2_381, 6_443, 10_248, 10_249, 10_250, 10_255, 10_256, 10_257, 10_258, 10_259],
]);

/** The ports of one protocol that listeners have. */
class Taken {
  readonly ports = new Set<number>();
  /** How many listeners of each namespace have one. */
  readonly held = new Map<string, number>();
  /** How many retired ports had expired when a search through all ports found none. */
  usedUpAt: number | undefined;

  add({ name }: ServedSet, port: number): void {
    this.ports.add(port);
    this.#count(name, 1);
  }

  delete({ name }: ServedSet, port: number): void {
    if (this.ports.delete(port)) this.#count(name, -1);
    this.usedUpAt = undefined;
  }

  #count(name: ServicePortName, change: number): void {
    const { namespace } = partsOf(name);
    const count = (this.held.get(namespace) ?? 0) + change;
    if (count > 0) this.held.set(namespace, count);
    else this.held.delete(namespace);
  }
}

/**
 * The local ports of one address family: which listeners have them, which the kernel leads clients to, and which it led
 * them to less than {@link RETIRED_FOR_MS} ago, as conntrack may still do. The latter are in the kernel too: like
 * conntrack's entries, they outlive this process and go with the network namespace. Their times are those of the wall
 * clock, as only that outlives the process.
 *
 * A listener gets the port that it had before, else a random one that no other listener had recently (the kernel's
 * choice, port 0, could be one), else the one that another left first. No namespace gets them all.
 */
export class PortBook implements RetiredPorts {
  readonly #options: PortBookOptions;
  readonly #taken = { TCP: new Taken(), UDP: new Taken() };
  readonly #live = new Map<ServicePortName, Portal>();
  /** To whom the kernel leads, by {@link idOf}. */
  readonly #owners = new Map<number, InstalledPort>();
  /** By {@link idOf}, the oldest first. */
  readonly #retired = new Map<number, RetiredPort>();
  /** The retired port that a listener had last, by {@link ownerKey}. */
  readonly #last = new Map<string, InstalledPort>();
  #serial = 0;
  #expired = 0;

  constructor(options: PortBookOptions) {
    this.#options = options;
  }

  /** How many ports there are. */
  get size(): number {
    const { first, last } = this.#options.range;
    return last - first + 1;
  }

  /** How many of them are reserved for other programs. */
  get reserved(): number {
    const { range, reserved } = this.#options;
    return [...reserved].filter((port) => isWithin(port, range)).length;
  }

  /** Those to which the kernel leads. */
  get portals(): Iterable<Portal> {
    return this.#live.values();
  }

  /** Ports that a previous run left in the kernel. Call it before {@link take}. */
  remember(ports: readonly InstalledPort[]): void {
    const age = (port: InstalledPort) => port.retiredForMs ?? 0;
    for (const port of ports.toSorted((a, b) => age(b) - age(a))) this.found(port);
  }

  /** Whether the namespace of `name` may have one more: less than its share of what is free. */
  isWithinShare({ name, protocol }: PortOwner): boolean {
    const { ports, held } = this.#taken[protocol];
    return mayTakeMore(held.get(partsOf(name).namespace) ?? 0, this.size - ports.size);
  }

  /** A port to try that is not in `except`; `undefined` when there is none. */
  take(owner: PortOwner, except: ReadonlySet<number>): TakenPort | undefined {
    const taken = this.#find(owner, except);
    if (taken !== undefined) this.adopt(owner, taken.port);
    return taken;
  }

  /** The listener has this port. */
  adopt(owner: PortOwner, port: number): void {
    this.#taken[owner.protocol].add(owner, port);
  }

  /** The listener has left its port, or could not use it. */
  giveBack(owner: PortOwner, port: number): void {
    this.#taken[owner.protocol].delete(owner, port);
  }

  /** The kernel leads to the ports of this portal. Retires the other ports that it had before. */
  serve(portal: Portal): void {
    const { name } = portal.servicePort;
    const before = portsOf(this.#live.get(name));
    this.#live.set(name, portal);
    const after = portsOf(portal);
    for (const port of after) {
      this.#owners.set(idOf(port), port);
      this.#forget(idOf(port));
    }
    const ids = after.map(idOf);
    for (const port of before) if (!ids.includes(idOf(port))) this.#leave(port);
  }

  remove(name: ServicePortName): void {
    const before = portsOf(this.#live.get(name));
    this.#live.delete(name);
    for (const port of before) this.#leave(port);
  }

  found(port: InstalledPort): void {
    if (this.#owners.has(idOf(port)) || this.#retired.has(idOf(port))) return;
    this.#retire(port, this.#options.clock.wallNow() - (port.retiredForMs ?? 0));
  }

  /** At most {@link MAX_RETIRED}. */
  retiredAfter(serial: number): readonly RetiredPort[] {
    this.#expire();
    return [...this.#retired.values()].filter((retired) => retired.serial > serial).slice(-MAX_RETIRED);
  }

  #find(owner: PortOwner, except: ReadonlySet<number>): TakenPort | undefined {
    const { random, range, reserved, leftForLast, isNeeded } = this.#options;
    const { protocol } = owner;
    const taken = this.#taken[protocol];
    this.#expire();
    const isUsable = (port: number) =>
      !taken.ports.has(port) &&
      !except.has(port) &&
      !EXCLUDED.has(port) &&
      !reserved.has(port) &&
      isWithin(port, range) &&
      !isNeeded?.(port, protocol);
    const isFree = (port: number) => {
      const id = idOf({ localPort: port, protocol });
      const last = this.#owners.get(id) ?? this.#retired.get(id)?.port;
      return (last === undefined || isSameOwner(last, owner)) && isUsable(port);
    };

    const before = this.#portOf(owner);
    if (before !== undefined && isFree(before)) return { port: before, isReclaimed: false };
    if (taken.usedUpAt !== this.#expired) {
      const start = Math.floor(random() * this.size);
      let last: number | undefined;
      for (let step = 0; step < this.size; step++) {
        const port = range.first + ((start + step) % this.size);
        if (!isFree(port)) continue;
        last ??= port;
        if (leftForLast === undefined || !isWithin(port, leftForLast)) return { port, isReclaimed: false };
      }
      if (last !== undefined) return { port: last, isReclaimed: false };
      // Ports in use by other programs may be free by the next time.
      if (except.size === 0) taken.usedUpAt = this.#expired;
    }
    for (const [id, { port }] of this.#retired) {
      if (port.protocol !== protocol || !isUsable(port.localPort)) continue;
      this.#forget(id);
      return { port: port.localPort, isReclaimed: true };
    }
    return undefined;
  }

  /** The port that this listener has, or had until recently. */
  #portOf(owner: PortOwner): number | undefined {
    const live = portsOf(this.#live.get(owner.name)).find((port) => isSameOwner(port, owner));
    return (live ?? this.#last.get(ownerKey(owner)))?.localPort;
  }

  #leave(port: InstalledPort): void {
    const id = idOf(port);
    if (this.#owners.get(id)?.name !== port.name) return;
    this.#owners.delete(id);
    this.#retire(port, this.#options.clock.wallNow());
  }

  #retire(port: InstalledPort, at: number): void {
    this.#retired.set(idOf(port), { serial: ++this.#serial, port, at });
    this.#last.set(ownerKey(port), port);
  }

  /** Forgets what retired long enough ago. */
  #expire(): void {
    const now = this.#options.clock.wallNow();
    for (const [id, { at }] of this.#retired) {
      if (now - at < RETIRED_FOR_MS) break;
      this.#forget(id);
      this.#expired++;
    }
  }

  #forget(id: number): void {
    const port = this.#retired.get(id)?.port;
    if (port === undefined) return;
    this.#retired.delete(id);
    if (this.#last.get(ownerKey(port)) === port) this.#last.delete(ownerKey(port));
  }
}

function isWithin(port: number, { first, last }: PortRange): boolean {
  return port >= first && port <= last;
}

function isSameOwner(one: PortOwner, other: PortOwner): boolean {
  return one.name === other.name && one.set === other.set && one.protocol === other.protocol;
}

function portsOf(portal: Portal | undefined): readonly InstalledPort[] {
  if (portal === undefined) return [];
  const { name, protocol } = portal.servicePort;
  return localPortsOf(portal).map(({ port, set }) => ({ name, set, protocol, localPort: port }));
}

function ownerKey({ name, set, protocol }: PortOwner): string {
  return `${name} ${set} ${protocol}`;
}

/** A number, because the search for a free port asks for thousands. */
function idOf({ localPort, protocol }: Pick<InstalledPort, 'localPort' | 'protocol'>): number {
  return protocol === 'TCP' ? localPort : localPort + (1 << 16);
}
