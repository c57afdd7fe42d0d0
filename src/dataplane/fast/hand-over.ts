import type { AdoptedPort, HandOver, Parcel } from '../../contracts/hand-over.ts';
import type { ConnectionRecord } from '../../worker/hand-over.ts';
import type { PortId } from '../../worker/protocol.ts';
import type { PortState } from './parcel-records.ts';
import { pack, unpack } from './parcels.ts';
import type { WorkerThread } from './worker-thread.ts';

/** What the data plane does for it. */
export interface HandOverHost {
  readonly workers: readonly WorkerThread[];
  /** Every open port, as its worker knows it and with nothing in its record. */
  ports(): Iterable<{ readonly id: PortId; readonly state: PortState }>;
  closeListeners(): void;
  /** Opens a port that another process had. Rejects with the reason when it cannot. */
  adoptPort(state: PortState): Promise<void>;
  adoptOrphans(connections: readonly ConnectionRecord[]): Promise<void>;
}

/** The main thread's part of passing everything on: it gathers from the workers, and spreads over them. */
export class FastHandOver implements HandOver {
  readonly #host: HandOverHost;

  constructor(host: HandOverHost) {
    this.#host = host;
  }

  async freeze(): Promise<readonly Parcel[]> {
    const frozen = await Promise.all(this.#host.workers.map((worker) => worker.freeze()));
    const records = new Map(frozen.flatMap(({ ports }) => ports.map(({ port, record }) => [port, record] as const)));
    const ports = Array.from(this.#host.ports(), ({ id, state }) => ({
      ...state,
      record: records.get(id) ?? state.record,
    }));
    return pack({ ports, orphans: frozen.flatMap(({ orphans }) => orphans) });
  }

  thaw(): void {
    for (const worker of this.#host.workers) worker.thaw();
  }

  check(): void {
    for (const worker of this.#host.workers) worker.check();
  }

  async atWork(): Promise<void> {
    await Promise.all(this.#host.workers.map((worker) => worker.turned()));
  }

  recover(): void {
    for (const worker of this.#host.workers) worker.reset();
  }

  async release(): Promise<void> {
    await Promise.all(this.#host.workers.map((worker) => worker.release()));
    this.#host.closeListeners();
  }

  async adopt(parcels: readonly Parcel[]): Promise<readonly AdoptedPort[]> {
    const { ports, orphans } = unpack(parcels);
    await Promise.all(ports.map((port) => this.#host.adoptPort(port)));
    if (orphans.length > 0) await this.#host.adoptOrphans(orphans);
    return ports.map(({ id, name, family, protocol, address, localPort }) => {
      return { id, name, family, protocol, address, localPort };
    });
  }
}
