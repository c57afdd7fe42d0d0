import type { ServicePortName } from '../model/service.ts';
import { localPortsOf, type Portal } from './claims.ts';
import { type InstalledPort, portId, RETIRED_FOR_MS, retiredSpec } from './installed-ports.ts';
import { unsafeReason } from './safe-spec.ts';

/** Enough for 13 Services that go every second; what it costs in kernel memory is under 2 MB. */
export const MAX_RETIRED = 4096;

/** The first `length` of `specs`. As long as `specs` is the same object, a later log only has more of them. */
export interface RetiredLog {
  readonly specs: readonly string[];
  readonly length: number;
}

interface Retired {
  readonly port: InstalledPort;
  /** Wall clock, milliseconds since 1970. */
  readonly at: number;
}

/**
 * Which local ports carry Service ports, and which did so less than {@link RETIRED_FOR_MS} ago. The latter are written
 * into a chain that nothing leads to: rules outlive this process and go with the network namespace, just as
 * conntrack's entries do. Times are of the wall clock, which is all that two runs have in common.
 */
export class PortLedger {
  readonly #live = new Map<ServicePortName, readonly InstalledPort[]>();
  readonly #carriers = new Map<string, ServicePortName>();
  /** By {@link portId}, the oldest first. */
  readonly #retired = new Map<string, Retired>();
  #log: string[] = [];

  carry(portal: Portal, now: number): void {
    const { name, protocol } = portal.servicePort;
    const ports = localPortsOf(portal).map(
      ({ port, set }): InstalledPort => ({ name, set, protocol, localPort: port }),
    );
    const before = this.#live.get(name) ?? [];
    this.#live.set(name, ports);
    for (const port of ports) {
      this.#carriers.set(portId(port), name);
      this.#retired.delete(portId(port));
    }
    const kept = new Set(ports.map(portId));
    for (const port of before) {
      if (!kept.has(portId(port))) this.#leave(port, now);
    }
  }

  drop(name: ServicePortName, now: number): void {
    const ports = this.#live.get(name) ?? [];
    this.#live.delete(name);
    for (const port of ports) this.#leave(port, now);
  }

  /** The kernel has, or had, rules that lead to this port. */
  found(port: InstalledPort, now: number): void {
    if (this.#carriers.has(portId(port)) || this.#retired.has(portId(port))) return;
    this.#retire(port, now - (port.retiredForMs ?? 0));
  }

  /** What the chain holds when all that was retired since is appended to it; bounded by twice {@link MAX_RETIRED}. */
  log(now: number): RetiredLog {
    return this.#log.length > 2 * MAX_RETIRED ? this.compactLog(now) : { specs: this.#log, length: this.#log.length };
  }

  /** The same without what has expired, or carries a Service again. */
  compactLog(now: number): RetiredLog {
    for (const [id, { at }] of this.#retired) {
      // One from the future stays until the clock gets there, or until it is read again.
      if (now - at >= RETIRED_FOR_MS) this.#retired.delete(id);
    }
    const specs = [...this.#retired.values()].map(({ port, at }) => retiredSpec(port, at));
    const same = specs.length === this.#log.length && specs.every((spec, index) => spec === this.#log[index]);
    if (!same) this.#log = specs;
    return { specs: this.#log, length: this.#log.length };
  }

  #leave(port: InstalledPort, now: number): void {
    // Another Service port may have it by now.
    if (this.#carriers.get(portId(port)) !== port.name) return;
    this.#carriers.delete(portId(port));
    this.#retire(port, now);
  }

  #retire(port: InstalledPort, at: number): void {
    const spec = retiredSpec(port, at);
    if (unsafeReason(spec) !== undefined) return;
    this.#retired.set(portId(port), { port, at });
    for (const oldest of this.#retired.keys()) {
      if (this.#retired.size <= MAX_RETIRED) break;
      this.#retired.delete(oldest);
    }
    this.#log.push(spec);
  }
}
