import {
  type Backends,
  type DataPlane,
  ListenError,
  type ListenSpec,
  type ServicePortStats,
} from '../../src/contracts/data-plane.ts';
import type { ServicePortName } from '../../src/model/service.ts';

/**
 * A data plane without sockets: it keeps what is open and which ports are taken, as `test/compliance/listening.ts`
 * demands of every engine. Tests may let ports be taken by "another program" and hold operations up.
 */
export class FakeDataPlane implements DataPlane {
  readonly listeners = new Map<ServicePortName, { spec: ListenSpec; port: number; backends: Backends }>();
  /** `TCP:8080` and the like. */
  readonly taken = new Set<string>();
  readonly opened: ListenSpec[] = [];
  #nextPort = 40_000;
  #gate: Promise<void> = Promise.resolve();

  /** Holds every following open and close up until the returned function is called. */
  hold(): () => void {
    let release = () => {};
    this.#gate = new Promise((resolve) => {
      release = resolve;
    });
    return release;
  }

  async open(spec: ListenSpec, backends: Backends): Promise<number> {
    this.opened.push(spec);
    await this.#gate;
    if (this.listeners.has(spec.name)) throw new ListenError('failed', `${spec.name} is open already`);
    const port = spec.port === 0 ? this.#nextPort++ : spec.port;
    const key = `${spec.protocol}:${port}`;
    if (this.taken.has(key)) throw new ListenError('address-in-use', `port ${port} is taken`);
    this.taken.add(key);
    this.listeners.set(spec.name, { spec, port, backends });
    return port;
  }

  update(name: ServicePortName, backends: Backends): void {
    const listener = this.listeners.get(name);
    if (listener !== undefined) listener.backends = backends;
  }

  async close(name: ServicePortName): Promise<void> {
    await this.#gate;
    const listener = this.listeners.get(name);
    if (listener === undefined) return;
    this.listeners.delete(name);
    this.taken.delete(`${listener.spec.protocol}:${listener.port}`);
  }

  *stats(): Iterable<ServicePortStats> {}

  async shutdown(): Promise<void> {
    this.listeners.clear();
    this.taken.clear();
  }
}
