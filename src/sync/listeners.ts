import type { Clock, Timer } from '../contracts/clock.ts';
import { type Backends, type DataPlane, ListenError } from '../contracts/data-plane.ts';
import type { Log } from '../contracts/log.ts';
import type { ServicePortName } from '../model/service.ts';
import type { ProxiedProtocol, ServicePort } from '../model/service-port.ts';
import type { Portal } from '../rules/claims.ts';
import type { PortAllocator } from './port-allocator.ts';

export interface ListenersOptions {
  readonly dataPlane: DataPlane;
  readonly clock: Clock;
  readonly log: Log;
  readonly ports: PortAllocator;
  readonly bindAddress: string;
  /** The set of portals changed: rules must follow. */
  readonly onPortalsChanged: () => void;
}

interface Listener {
  readonly protocol: ProxiedProtocol;
  readonly localPort: number;
  /** No longer wanted; stays open until no rule leads to it. */
  retired: boolean;
}

const FIRST_RETRY_MS = 1_000;
const MAX_RETRY_MS = 30_000;

/**
 * Keeps the data plane's listeners in step with the wanted Service ports. A listener lives as long as its Service port
 * and protocol do, whatever else changes; rules come after a listener and go before it, so none ever leads to a closed
 * port.
 *
 * Level-triggered per name: each step compares what is wanted with what is open, so any order of changes converges.
 */
export class Listeners {
  readonly #options: ListenersOptions;
  readonly #wanted = new Map<ServicePortName, ServicePort>();
  readonly #open = new Map<ServicePortName, Listener>();
  readonly #retries = new Map<ServicePortName, { failures: number; readonly timer: Timer }>();
  readonly #busy = new Set<ServicePortName>();
  readonly #working = new Set<Promise<void>>();
  #stopped = false;

  constructor(options: ListenersOptions) {
    this.#options = options;
  }

  want(port: ServicePort): void {
    const before = this.#wanted.get(port.name);
    this.#wanted.set(port.name, port);
    const listener = this.#open.get(port.name);
    if (listener !== undefined && listener.protocol === port.protocol) {
      this.#options.dataPlane.update(port.name, backendsOf(port));
      const returned = listener.retired;
      listener.retired = false;
      if (returned || before === undefined || !samePortal(before, port)) this.#options.onPortalsChanged();
    } else {
      this.#work(port.name);
    }
  }

  unwant(name: ServicePortName): void {
    this.#wanted.delete(name);
    this.#forgetRetry(name);
    const listener = this.#open.get(name);
    if (listener === undefined) return;
    listener.retired = true;
    this.#options.onPortalsChanged();
  }

  /** Resolves when every listener that is being opened or closed now has got there or failed. */
  async settled(): Promise<void> {
    await Promise.all(this.#working);
  }

  /** What rules are made of. */
  portals(): Portal[] {
    const portals: Portal[] = [];
    for (const [name, { localPort, protocol, retired }] of this.#open) {
      const servicePort = this.#wanted.get(name);
      if (!retired && servicePort?.protocol === protocol) portals.push({ servicePort, localPort });
    }
    return portals;
  }

  /** The names that {@link closeRetired} may close once rules without them are installed. */
  retired(): ServicePortName[] {
    return [...this.#open].filter(([, listener]) => listener.retired).map(([name]) => name);
  }

  closeRetired(names: readonly ServicePortName[]): void {
    for (const name of names) {
      if (this.#open.get(name)?.retired) this.#work(name);
    }
  }

  stop(): void {
    this.#stopped = true;
    for (const name of this.#retries.keys()) this.#forgetRetry(name);
  }

  /** One worker per name at a time; it goes on until wanted and open agree. */
  #work(name: ServicePortName): void {
    if (this.#busy.has(name) || this.#stopped) return;
    this.#busy.add(name);
    const work = this.#converge(name).finally(() => this.#working.delete(work));
    this.#working.add(work);
  }

  async #converge(name: ServicePortName): Promise<void> {
    try {
      for (;;) {
        const wanted = this.#wanted.get(name);
        const listener = this.#open.get(name);
        if (listener !== undefined && (listener.retired || listener.protocol !== wanted?.protocol)) {
          await this.#close(name, listener);
        } else if (listener === undefined && wanted !== undefined && !this.#stopped) {
          if (!(await this.#openOne(wanted))) return;
        } else {
          return;
        }
      }
    } finally {
      // In the same turn as the last look at what is wanted: a change after it finds no worker and starts one.
      this.#busy.delete(name);
    }
  }

  async #close(name: ServicePortName, listener: Listener): Promise<void> {
    const { dataPlane, ports, log } = this.#options;
    this.#open.delete(name);
    try {
      await dataPlane.close(name);
    } catch (error) {
      log.error('Cannot close a listener; its local port stays taken', { svc: name, err: String(error) });
    }
    ports.release(listener.localPort);
    log.v(2)?.info('Stopped listening', { svc: name, port: listener.localPort });
  }

  /** Resolves with whether there is a listener now; if not, a retry is armed. */
  async #openOne(wanted: ServicePort): Promise<boolean> {
    const { name, protocol } = wanted;
    const { dataPlane, log, onPortalsChanged } = this.#options;
    try {
      const localPort = await this.#listen(wanted);
      this.#forgetRetry(name);
      this.#open.set(name, { protocol, localPort, retired: !this.#wanted.has(name) });
      // It may have changed while the listener was being opened.
      const latest = this.#wanted.get(name);
      if (latest !== undefined && latest !== wanted) dataPlane.update(name, backendsOf(latest));
      log.v(1)?.info('Proxying for a Service port', { svc: name, protocol, port: localPort });
      onPortalsChanged();
      return true;
    } catch (error) {
      this.#retryLater(name, error);
      return false;
    }
  }

  async #listen(wanted: ServicePort): Promise<number> {
    const { dataPlane, ports, bindAddress: address } = this.#options;
    const { name, protocol } = wanted;
    const tried = new Set<number>();
    for (;;) {
      const port = ports.take(tried);
      if (port === undefined) {
        throw new ListenError(
          'address-in-use',
          `all ${ports.size} ports of --proxy-port-range are taken; widen the range`,
        );
      }
      try {
        return await dataPlane.open({ name, protocol, address, port }, backendsOf(wanted));
      } catch (error) {
        ports.release(port);
        const another = error instanceof ListenError && error.code === 'address-in-use' && port !== 0;
        if (!another) throw error;
        tried.add(port);
      }
    }
  }

  #retryLater(name: ServicePortName, error: unknown): void {
    if (!this.#wanted.has(name) || this.#stopped) return;
    const failures = (this.#retries.get(name)?.failures ?? 0) + 1;
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), MAX_RETRY_MS);
    this.#options.log.error('Cannot listen for a Service port; trying again', {
      svc: name,
      err: error instanceof Error ? error.message : String(error),
      retryInMs: delayMs,
    });
    const timer = this.#options.clock.after(delayMs, () => this.#work(name));
    this.#retries.set(name, { failures, timer });
  }

  #forgetRetry(name: ServicePortName): void {
    this.#retries.get(name)?.timer.cancel();
    this.#retries.delete(name);
  }
}

function backendsOf(port: ServicePort): Backends {
  return { endpoints: port.endpoints, affinity: port.affinity };
}

/** Whether the two make the same rules: endpoints and affinity never reach them. */
function samePortal(a: ServicePort, b: ServicePort): boolean {
  return (
    a.protocol === b.protocol &&
    a.port === b.port &&
    a.nodePort === b.nodePort &&
    sameList(a.clusterIPs, b.clusterIPs) &&
    sameList(a.externalIPs, b.externalIPs) &&
    sameList(a.loadBalancerIPs, b.loadBalancerIPs)
  );
}

function sameList(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((item, index) => item === b[index]);
}
