import type { IpFamily, PortRange } from '../model/address.ts';
import { type ListenerId, listenerId, type ProxiedProtocol } from '../model/service-port.ts';
import { DROP_PORT, REJECT_PORT } from '../rules/chains.ts';
import { type InstalledPort, MAX_RETIRED, RETIRED_FOR_MS } from '../rules/local-ports.ts';
import type { Clock, Random } from '../util/clock.ts';

interface PortAllocatorOptions {
  readonly family: IpFamily;
  readonly range: PortRange;
  /** Part of the range: for when no other port is free. */
  readonly leftForLast?: PortRange;
  /** By another program, or by the node for a Service. */
  readonly isNeeded?: (port: number, protocol: ProxiedProtocol) => boolean;
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

/** The listener that needs a port. TCP and UDP have ports of their own. */
export interface PortOwner {
  readonly id: ListenerId;
  readonly protocol: ProxiedProtocol;
}

function isWithin(port: number, { first, last }: PortRange): boolean {
  return port >= first && port <= last;
}

/**
 * Chooses the local ports of one address family: the port that the listener had before, else a random one that no other
 * listener had recently. The kernel's choice (port 0) could be one.
 */
export class PortAllocator {
  readonly #options: PortAllocatorOptions;
  readonly #taken = { TCP: new Set<number>(), UDP: new Set<number>() };
  readonly #history = { TCP: new PortHistory(), UDP: new PortHistory() };

  constructor(options: PortAllocatorOptions) {
    this.#options = options;
  }

  get size(): number {
    const { first, last } = this.#options.range;
    return last - first + 1;
  }

  /** Ports that a previous run left in the kernel. Call it before {@link take}. */
  remember(ports: readonly InstalledPort[]): void {
    const now = this.#options.clock.now();
    for (const history of Object.values(this.#history)) history.reserve(ports.length);
    const age = (port: InstalledPort) => port.retiredForMs ?? 0;
    for (const port of ports.toSorted((a, b) => age(b) - age(a))) {
      const untilMs = now + RETIRED_FOR_MS - age(port);
      const owner = listenerId(port.name, this.#options.family, port.set);
      this.#history[port.protocol].add(port.localPort, { owner, untilMs });
    }
  }

  /** A port to try that is not in `except`; `undefined` when there is none. */
  take({ id, protocol }: PortOwner, except: ReadonlySet<number>): number | undefined {
    const port = this.#find(id, protocol, except);
    if (port !== undefined) this.#taken[protocol].add(port);
    return port;
  }

  #find(id: ListenerId, protocol: ProxiedProtocol, except: ReadonlySet<number>): number | undefined {
    const { clock, random, range, leftForLast, isNeeded } = this.#options;
    const history = this.#history[protocol];
    history.expire(clock.now());
    const isFree = (port: number) =>
      !this.#taken[protocol].has(port) &&
      !except.has(port) &&
      !EXCLUDED.has(port) &&
      (history.ownerOf(port) ?? id) === id &&
      !isNeeded?.(port, protocol);

    const before = history.portOf(id);
    if (before !== undefined && isWithin(before, range) && isFree(before)) return before;
    const start = Math.floor(random() * this.size);
    let last: number | undefined;
    for (let step = 0; step < this.size; step++) {
      const port = range.first + ((start + step) % this.size);
      if (!isFree(port)) continue;
      if (leftForLast === undefined || !isWithin(port, leftForLast)) return port;
      last ??= port;
    }
    return last;
  }

  adopt({ protocol }: PortOwner, port: number): void {
    this.#taken[protocol].add(port);
  }

  /** The port from {@link take} could not be used. */
  giveBack({ protocol }: PortOwner, port: number): void {
    this.#taken[protocol].delete(port);
  }

  /** The listener has left its port. No other listener gets it for a while. */
  retire({ id, protocol }: PortOwner, port: number): void {
    this.#taken[protocol].delete(port);
    this.#history[protocol].add(port, { owner: id, untilMs: this.#options.clock.now() + RETIRED_FOR_MS });
  }
}

/**
 * Which listener recently had which local port. Conntrack still sends packets of known connections and flows to the old
 * port, so another Service there would get them.
 */
class PortHistory {
  /** By local port, the first to expire first. */
  readonly #entries = new Map<number, { readonly owner: ListenerId; readonly untilMs: number }>();
  readonly #ports = new Map<ListenerId, number>();
  #maxEntries = MAX_RETIRED;

  /** Entries must come in the order in which they expire. */
  add(port: number, entry: { readonly owner: ListenerId; readonly untilMs: number }): void {
    this.#forget(port);
    this.#entries.set(port, entry);
    this.#ports.set(entry.owner, port);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#maxEntries) break;
      this.#forget(oldest);
    }
  }

  /** Makes room for all Service ports of a previous run. */
  reserve(count: number): void {
    this.#maxEntries = Math.max(MAX_RETIRED, count);
  }

  expire(nowMs: number): void {
    for (const [port, { untilMs }] of this.#entries) {
      if (untilMs > nowMs) break;
      this.#forget(port);
    }
  }

  ownerOf(port: number): ListenerId | undefined {
    return this.#entries.get(port)?.owner;
  }

  portOf(owner: ListenerId): number | undefined {
    return this.#ports.get(owner);
  }

  #forget(port: number): void {
    const owner = this.ownerOf(port);
    this.#entries.delete(port);
    if (owner !== undefined && this.#ports.get(owner) === port) this.#ports.delete(owner);
  }
}
