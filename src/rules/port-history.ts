import type { ServicePortName } from '../model/service.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { sameList } from '../util/same-list.ts';
import { type InstalledPort, RETIRED_FOR_MS, retiredSpec } from './local-ports.ts';
import { localPortsOf, type Portal } from './portal.ts';
import { type ServedSet, unsafeReason } from './rule.ts';

/** In the kernel: enough for 13 Services that go every second, and less than 2 MB of its memory. */
export const MAX_RETIRED = 4096;

/** The listener that has or had a local port. TCP and UDP have ports of their own. */
export interface PortOwner extends ServedSet {
  readonly protocol: ProxiedProtocol;
}

/** The first `length` of `specs`. While `specs` is the same object, a later log only appends to it. */
export interface RetiredLog {
  readonly specs: readonly string[];
  readonly length: number;
}

/**
 * Which local ports rules lead to, and which they led to less than {@link RETIRED_FOR_MS} ago: conntrack may still send
 * clients there. The latter are written into a chain that no packet enters: like conntrack's entries, rules outlive
 * this process and go with the network namespace. Times are milliseconds since 1970, because only the wall clock
 * outlives the process.
 */
export class PortHistory {
  readonly #live = new Map<ServicePortName, Portal>();
  /** The one that has a port, by {@link idOf}. */
  readonly #owners = new Map<number, Portal>();
  /** By {@link idOf}, the oldest first. */
  readonly #retired = new Map<number, { readonly port: InstalledPort; readonly at: number }>();
  /** The port that a listener had last, by {@link ownerKey}. */
  readonly #last = new Map<string, InstalledPort>();
  #log: string[] = [];
  #expired = 0;

  /** Those to which rules lead. */
  get portals(): Iterable<Portal> {
    return this.#live.values();
  }

  /** Retires the other ports that the portal had before. */
  serve(portal: Portal, now: number): void {
    const { name } = portal.servicePort;
    const before = portsOf(this.#live.get(name));
    this.#live.set(name, portal);
    const ids = portsOf(portal).map(idOf);
    for (const id of ids) {
      this.#owners.set(id, portal);
      this.#forget(id);
    }
    for (const port of before) if (!ids.includes(idOf(port))) this.#leave(port, now);
  }

  remove(name: ServicePortName, now: number): void {
    const before = portsOf(this.#live.get(name));
    this.#live.delete(name);
    for (const port of before) this.#leave(port, now);
  }

  /** The kernel has or had rules for this port. */
  found(port: InstalledPort, now: number): void {
    if (this.#owners.has(idOf(port)) || this.#retired.has(idOf(port))) return;
    this.#retire(port, now - (port.retiredForMs ?? 0));
  }

  /** Forgets what retired long enough ago. Returns how many ports that were, from the start. */
  expire(now: number): number {
    for (const [id, { at }] of this.#retired) {
      if (now - at < RETIRED_FOR_MS) break;
      this.#forget(id);
      this.#expired++;
    }
    return this.#expired;
  }

  /** Who has this port, or had it until recently. */
  ownerOf(localPort: number, protocol: ProxiedProtocol): PortOwner | undefined {
    const id = idOf({ localPort, protocol });
    const live = portsOf(this.#owners.get(id)).find((port) => port.localPort === localPort);
    return live ?? this.#retired.get(id)?.port;
  }

  /** The port that this listener has, or had until recently. */
  portOf(owner: PortOwner): number | undefined {
    const live = portsOf(this.#live.get(owner.name)).find((port) => isSameOwner(port, owner));
    return (live ?? this.#last.get(ownerKey(owner)))?.localPort;
  }

  /** Forgets the port that retired first of those that suit, so that another listener may have it. */
  reclaim(protocol: ProxiedProtocol, suits: (localPort: number) => boolean): number | undefined {
    for (const [id, { port }] of this.#retired) {
      if (port.protocol !== protocol || !suits(port.localPort)) continue;
      this.#forget(id);
      return port.localPort;
    }
    return undefined;
  }

  /** The contents of the chain; appends ports that retired since. At most twice {@link MAX_RETIRED}. */
  log(now: number): RetiredLog {
    return this.#log.length > 2 * MAX_RETIRED ? this.compactLog(now) : { specs: this.#log, length: this.#log.length };
  }

  /** The same without ports that have expired or serve again. */
  compactLog(now: number): RetiredLog {
    this.expire(now);
    const newest = [...this.#retired.values()].slice(-MAX_RETIRED);
    const specs = newest.map(({ port, at }) => retiredSpec(port, at));
    if (!sameList(specs, this.#log)) this.#log = specs;
    return { specs: this.#log, length: this.#log.length };
  }

  #leave(port: InstalledPort, now: number): void {
    if (this.#owners.get(idOf(port))?.servicePort.name !== port.name) return;
    this.#owners.delete(idOf(port));
    this.#retire(port, now);
  }

  #retire(port: InstalledPort, at: number): void {
    const spec = retiredSpec(port, at);
    if (unsafeReason(spec) !== undefined) return;
    this.#retired.set(idOf(port), { port, at });
    this.#last.set(ownerKey(port), port);
    this.#log.push(spec);
  }

  #forget(id: number): void {
    const port = this.#retired.get(id)?.port;
    if (port === undefined) return;
    this.#retired.delete(id);
    if (this.#last.get(ownerKey(port)) === port) this.#last.delete(ownerKey(port));
  }
}

export function isSameOwner(one: PortOwner, other: PortOwner): boolean {
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
