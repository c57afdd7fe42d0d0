import type { IpFamily, PortRange } from '../model/address.ts';
import { type ListenerId, listenerId, type ProxiedProtocol } from '../model/service-port.ts';
import { DROP_PORT, REJECT_PORT } from '../rules/chains.ts';
import { type InstalledPort, RETIRED_FOR_MS } from '../rules/local-ports.ts';
import type { Clock, Random } from '../util/clock.ts';
import { PortHistory } from './port-history.ts';

export interface PortAllocatorOptions {
  readonly family: IpFamily;
  readonly range: PortRange;
  /** Ports of the range that are for others. */
  readonly reserved?: ReadonlySet<number>;
  /** Part of the range that is used when no other port is free. */
  readonly leftForLast?: PortRange;
  /** Whether another program, or the node itself for a Service, is known to need it. */
  readonly isNeeded?: (port: number, protocol: ProxiedProtocol) => boolean;
  readonly clock: Clock;
  readonly random: Random;
}

/** To which rules send what no listener is to get. */
const DOOR_PORTS: ReadonlySet<number> = new Set([REJECT_PORT, DROP_PORT]);

/**
 * What Kubernetes has programs of a node listen at ("Ports and Protocols" of its documentation, and kubelet's and
 * kube-proxy's other defaults). One that is being restarted holds nothing, so trying a port does not tell.
 */
const PORTS_OF_KUBERNETES: ReadonlySet<number> = new Set([
  ...[2_379, 2_380, 2_381, 6_443, 10_248, 10_249, 10_250, 10_255, 10_256, 10_257, 10_258, 10_259],
]);

/** Who asks for a port. TCP and UDP have ports of their own. */
export interface PortOwner {
  readonly id: ListenerId;
  readonly protocol: ProxiedProtocol;
}

function isWithin(port: number, { first, last }: PortRange): boolean {
  return port >= first && port <= last;
}

/**
 * Chooses the local ports of one address family: the one that the listener had before, else one at random that no other had
 * of late. Not the kernel's choice of port 0, which could be such a one.
 */
export class PortAllocator {
  readonly #options: PortAllocatorOptions;
  readonly #taken = { TCP: new Set<number>(), UDP: new Set<number>() };
  readonly #history = { TCP: new PortHistory(), UDP: new PortHistory() };

  constructor(options: PortAllocatorOptions) {
    this.#options = options;
  }

  /** How many ports there are. */
  get size(): number {
    const { first, last } = this.#options.range;
    return last - first + 1;
  }

  /** What a previous run of the program left in the kernel. Before the first port is taken. */
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

  /** A port to try that is neither taken nor in `except`; `undefined` when there is none. */
  take(owner: PortOwner, except: ReadonlySet<number>): number | undefined {
    const { clock, random, range, reserved, leftForLast } = this.#options;
    const taken = this.#taken[owner.protocol];
    const history = this.#history[owner.protocol];
    history.expire(clock.now());
    const isFree = (port: number) =>
      !taken.has(port) &&
      !except.has(port) &&
      !DOOR_PORTS.has(port) &&
      !this.#isNeeded(port, owner.protocol) &&
      (history.ownerOf(port) ?? owner.id) === owner.id;

    const before = history.portOf(owner.id);
    if (before !== undefined && isWithin(before, range) && isFree(before)) {
      taken.add(before);
      return before;
    }
    const start = Math.floor(random() * this.size);
    let last: number | undefined;
    for (let step = 0; step < this.size; step++) {
      const port = range.first + ((start + step) % this.size);
      if (!isFree(port) || reserved?.has(port)) continue;
      if (leftForLast !== undefined && isWithin(port, leftForLast)) {
        last ??= port;
        continue;
      }
      taken.add(port);
      return port;
    }
    if (last !== undefined) taken.add(last);
    return last;
  }

  #isNeeded(port: number, protocol: ProxiedProtocol): boolean {
    return PORTS_OF_KUBERNETES.has(port) || this.#options.isNeeded?.(port, protocol) === true;
  }

  /** It has this port already. */
  adopt({ protocol }: PortOwner, port: number): void {
    this.#taken[protocol].add(port);
  }

  /** The port that {@link take} gave could not be used. */
  giveBack({ protocol }: PortOwner, port: number): void {
    this.#taken[protocol].delete(port);
  }

  /** The listener has left its port. Nobody else gets it for a while. */
  retire({ id, protocol }: PortOwner, port: number): void {
    this.#taken[protocol].delete(port);
    this.#history[protocol].add(port, { owner: id, untilMs: this.#options.clock.now() + RETIRED_FOR_MS });
  }
}
