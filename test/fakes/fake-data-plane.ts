import type { Address } from '../../src/model/address.ts';
import type { ConnectionLogSink } from '../../src/model/connection-log.ts';
import {
  type Backends,
  COUNTERS,
  type Counters,
  type DataPlane,
  ListenError,
  type ListenerStats,
  type ListenSpec,
  type OpenConnection,
} from '../../src/model/data-plane.ts';
import { type Endpoint, endpointName } from '../../src/model/endpoint.ts';
import type { ListenerId } from '../../src/model/service-port.ts';

/**
 * A data plane without sockets, which records listeners and taken ports. Tests may let "another program" take ports,
 * and hold operations up.
 */
export class FakeDataPlane implements DataPlane {
  readonly listeners = new Map<ListenerId, { spec: ListenSpec; port: number; backends: Backends }>();
  /** `TCP:8080` and the like. */
  readonly taken = new Set<string>();
  readonly opened: ListenSpec[] = [];
  /** The open connections of a listener, set by tests. */
  readonly connected = new Map<ListenerId, readonly OpenConnection[]>();
  /** Counters other than 0, of a listener, or of an endpoint as `ID ADDRESS:PORT`; set by tests. */
  readonly counted = new Map<string, Partial<Counters>>();
  connectionLog: ConnectionLogSink | undefined;
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
    if (this.listeners.has(spec.id)) throw new ListenError('failed', `${spec.id} is open already`);
    const port = spec.port === 0 ? this.#nextPort++ : spec.port;
    const key = `${spec.protocol}:${port}`;
    if (this.taken.has(key)) throw new ListenError('address-in-use', `port ${port} is taken`);
    this.taken.add(key);
    this.listeners.set(spec.id, { spec, port, backends });
    return port;
  }

  update(id: ListenerId, backends: Backends): void {
    const listener = this.listeners.get(id);
    if (listener !== undefined) listener.backends = backends;
  }

  knowClients(): void {}

  logConnections(sink: ConnectionLogSink | undefined): void {
    this.connectionLog = sink;
  }

  async close(id: ListenerId): Promise<void> {
    await this.#gate;
    const listener = this.listeners.get(id);
    if (listener === undefined) return;
    this.listeners.delete(id);
    this.taken.delete(`${listener.spec.protocol}:${listener.port}`);
  }

  *stats(): Iterable<ListenerStats> {
    for (const id of this.listeners.keys()) yield this.statsOf(id) as ListenerStats;
  }

  statsOf(id: ListenerId): ListenerStats | undefined {
    const listener = this.listeners.get(id);
    if (listener === undefined) return undefined;
    const { name, family, protocol } = listener.spec;
    const { endpoints, draining = [] } = listener.backends;
    return {
      id,
      name,
      family,
      protocol,
      localPort: listener.port,
      counters: this.#counters(id),
      endpoints: [...endpoints, ...draining].map((endpoint) => {
        return { endpoint, counters: this.#counters(`${id} ${endpointName(endpoint)}`) };
      }),
    };
  }

  async *connections(id: ListenerId): AsyncIterable<readonly OpenConnection[]> {
    const connected = this.connected.get(id);
    if (connected !== undefined && this.listeners.has(id)) yield connected;
  }

  /** Always the first endpoint. */
  async nextPick(id: ListenerId, _client: Address): Promise<Endpoint | undefined> {
    return this.listeners.get(id)?.backends.endpoints[0];
  }

  async shutdown(): Promise<void> {
    this.listeners.clear();
    this.taken.clear();
  }

  #counters(of: string): Counters {
    return { ...(Object.fromEntries(COUNTERS.map((name) => [name, 0])) as Counters), ...this.counted.get(of) };
  }
}
