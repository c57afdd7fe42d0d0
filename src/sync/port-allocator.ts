import type { PortRange } from '../model/address.ts';
import { partsOf, type ServicePortName } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { DROP_PORT, REJECT_PORT } from '../rules/chains.ts';
import type { InstalledPort } from '../rules/local-ports.ts';
import { isSameOwner, type PortHistory, type PortOwner } from '../rules/port-history.ts';
import { mayTakeMore } from '../services/fair-share.ts';
import type { Clock, Random } from '../util/clock.ts';

export interface PortAllocatorOptions {
  readonly range: PortRange;
  /** Ports of the range that an administrator keeps for other programs. */
  readonly reserved: ReadonlySet<number>;
  /** Part of the range: for when no other port is free. */
  readonly leftForLast?: PortRange;
  /** By another program, or by the node for a Service. */
  readonly isNeeded?: (port: number, protocol: ProxiedProtocol) => boolean;
  readonly history: PortHistory;
  readonly clock: Clock;
  readonly random: Random;
}

/**
 * Never allocated: the targets of refused traffic, and the ports of programs of a Kubernetes node ("Ports and
 * Protocols" of its documentation, and defaults of kubelet and kube-proxy), which are free while a program restarts.
 */
const EXCLUDED: ReadonlySet<number> = new Set([
  ...[REJECT_PORT, DROP_PORT],
  ...[2_379, 2_380, 2_381, 6_443, 10_248, 10_249, 10_250, 10_255, 10_256, 10_257, 10_258, 10_259],
]);

/** A port to try. */
export interface TakenPort {
  readonly port: number;
  /** Another listener had it until recently: conntrack may still send clients of that one here. */
  readonly isReclaimed: boolean;
}

/** The ports of one protocol. */
class Ports {
  readonly taken = new Set<number>();
  /** How many listeners of each namespace have one. */
  readonly held = new Map<string, number>();
  /** How many ports the history had let go when a search through all ports found none. */
  usedUpAt: number | undefined;

  add({ name }: PortOwner, port: number): void {
    this.taken.add(port);
    this.#count(name, 1);
  }

  delete({ name }: PortOwner, port: number): void {
    if (this.taken.delete(port)) this.#count(name, -1);
    this.usedUpAt = undefined;
  }

  #count(name: ServicePortName, change: number): void {
    const { namespace } = partsOf(name);
    const count = (this.held.get(namespace) ?? 0) + change;
    if (count > 0) this.held.set(namespace, count);
    else this.held.delete(namespace);
  }
}

function isWithin(port: number, { first, last }: PortRange): boolean {
  return port >= first && port <= last;
}

/**
 * Chooses the local ports of one address family: the port that the listener had before, else a random one that no other
 * listener had recently (the kernel's choice, port 0, could be one), else the one that another listener left first. No
 * namespace gets them all.
 */
export class PortAllocator {
  readonly #options: PortAllocatorOptions;
  readonly #ports = { TCP: new Ports(), UDP: new Ports() };

  constructor(options: PortAllocatorOptions) {
    this.#options = options;
  }

  get size(): number {
    const { first, last } = this.#options.range;
    return last - first + 1;
  }

  /** How many of them are reserved for other programs. */
  get reserved(): number {
    const { range, reserved } = this.#options;
    return [...reserved].filter((port) => isWithin(port, range)).length;
  }

  /** Ports that a previous run left in the kernel. Call it before {@link take}. */
  remember(ports: readonly InstalledPort[]): void {
    const { history, clock } = this.#options;
    const now = clock.wallNow();
    const age = (port: InstalledPort) => port.retiredForMs ?? 0;
    for (const port of ports.toSorted((a, b) => age(b) - age(a))) history.found(port, now);
  }

  /** Whether the namespace of `name` may have one more: less than its share of what is free. */
  isWithinShare({ name, protocol }: PortOwner): boolean {
    const { taken, held } = this.#ports[protocol];
    return mayTakeMore(held.get(partsOf(name).namespace) ?? 0, this.size - taken.size);
  }

  /** A port to try that is not in `except`; `undefined` when there is none. */
  take(owner: PortOwner, except: ReadonlySet<number>): TakenPort | undefined {
    const taken = this.#find(owner, except);
    if (taken !== undefined) this.#ports[owner.protocol].add(owner, taken.port);
    return taken;
  }

  #find(owner: PortOwner, except: ReadonlySet<number>): TakenPort | undefined {
    const { clock, random, range, reserved, leftForLast, isNeeded, history } = this.#options;
    const { protocol } = owner;
    const ports = this.#ports[protocol];
    const expired = history.expire(clock.wallNow());
    const isUsable = (port: number) =>
      !ports.taken.has(port) &&
      !except.has(port) &&
      !EXCLUDED.has(port) &&
      !reserved.has(port) &&
      isWithin(port, range) &&
      !isNeeded?.(port, protocol);
    const isFree = (port: number) => {
      const last = history.ownerOf(port, protocol);
      return (last === undefined || isSameOwner(last, owner)) && isUsable(port);
    };

    const before = history.portOf(owner);
    if (before !== undefined && isFree(before)) return { port: before, isReclaimed: false };
    if (ports.usedUpAt !== expired) {
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
      if (except.size === 0) ports.usedUpAt = expired;
    }
    const reclaimed = history.reclaim(protocol, isUsable);
    return reclaimed === undefined ? undefined : { port: reclaimed, isReclaimed: true };
  }

  adopt(owner: PortOwner, port: number): void {
    this.#ports[owner.protocol].add(owner, port);
  }

  /** The listener has left its port, or could not use it. */
  giveBack(owner: PortOwner, port: number): void {
    this.#ports[owner.protocol].delete(owner, port);
  }
}
