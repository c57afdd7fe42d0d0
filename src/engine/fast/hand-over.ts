import type { ListenSpec } from '../../model/data-plane.ts';
import type { AdoptedPort, HandOver, Parcel } from '../../model/hand-over.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { close } from '../../sys/descriptor.ts';
import { stopReceiving } from './listen-socket.ts';
import { CLOSED_PORT, type PortState, pack, unpack } from './parcels.ts';
import { NO_PORT, type PortId } from './worker/protocol.ts';
import type { LiveRecord } from './worker/records.ts';
import type { WorkerThread } from './worker-thread.ts';

interface Assigned {
  readonly id: PortId;
  readonly spec: ListenSpec;
  readonly worker: WorkerThread;
}

/** What the data plane does for a hand-over. */
export interface HandOverHost {
  readonly workers: readonly WorkerThread[];
  /** Every open port, without its picker. */
  ports(): Iterable<{ readonly id: PortId; readonly state: PortState }>;
  /** Once all workers have ended. */
  closeAll(): void;
  /** Opens a port that another process had. Rejects with the reason when it cannot. */
  adoptPort(state: PortState): Promise<Assigned>;
  /** For the connections of ports that are not open any more. */
  leastLoaded(): WorkerThread;
}

/** The main thread's part of a hand-over: it gathers records from the workers, and distributes records to them. */
export class FastHandOver implements HandOver {
  readonly #host: HandOverHost;
  /** Counts hand-overs: one that was given up must not go on. */
  #round = 0;

  constructor(host: HandOverHost) {
    this.#host = host;
  }

  async freeze(): Promise<AsyncIterable<Parcel>> {
    const { workers } = this.#host;
    // First all of them, so that nothing is on its way between two when they stand still.
    const round = ++this.#round;
    await Promise.all(workers.map((worker) => worker.hold()));
    const check = () => {
      if (round !== this.#round) throw new Error('the hand-over was given up');
    };
    check();
    const frozen = await Promise.all(workers.map((worker) => worker.freeze()));
    const pickers = new Map(frozen.flatMap((each) => each.pickers));
    const ports = [...this.#host.ports()];
    const numbers = new Map(ports.map(({ id }, number) => [id, number]));
    const states = ports.map(({ id, state }) => {
      const picker = pickers.get(id);
      // The successor's picker restores its order from the same list.
      const endpoints = picker?.order ?? state.backends.endpoints;
      return { ...state, backends: { ...state.backends, endpoints }, picker };
    });
    const numbered = (records: readonly LiveRecord[]) =>
      records
        .map((record) => ({ ...record, port: numbers.get(record.port) ?? CLOSED_PORT }))
        // A flow ends with its port. One may have been on its way between two workers then.
        .filter((record) => record.port !== CLOSED_PORT || protocolOf(record) === 'TCP');
    const { waiting = [], onTheWay = [] } = Object.groupBy(
      frozen.flatMap(({ records }) => records),
      ({ kind }) => (kind === 'waiting' ? 'waiting' : 'onTheWay'),
    );
    return (async function* (): AsyncGenerator<Parcel> {
      yield* pack({ ports: states, records: numbered(onTheWay) });
      for (const worker of workers) {
        for await (const records of worker.given()) {
          check();
          yield* pack({ ports: [], records: numbered(records) });
        }
      }
      // Behind the flows of all workers: one of another worker may be what it waits for.
      yield* pack({ ports: [], records: numbered(waiting) });
    })();
  }

  check(): void {
    for (const worker of this.#host.workers) worker.check();
  }

  thaw(): void {
    this.#round++;
    for (const worker of this.#host.workers) worker.unfreeze('thaw');
  }

  async atWork(): Promise<void> {
    await Promise.all(this.#host.workers.map((worker) => worker.ask({ kind: 'turn' })));
  }

  recover(): void {
    this.#round++;
    for (const worker of this.#host.workers) worker.unfreeze('shutdown');
  }

  async release(): Promise<void> {
    await Promise.all(this.#host.workers.map((worker) => worker.end('release')));
    this.#host.closeAll();
  }

  async adopt(parcels: AsyncIterable<Parcel> | Iterable<Parcel>): Promise<readonly AdoptedPort[]> {
    const ports: Assigned[] = [];
    // Receiving the next parcel only then shows the predecessor that this process makes progress.
    for await (const parcel of parcels) {
      const unpacked = unpack(parcel);
      for (const fd of unpacked.surplus) {
        // The predecessor has it open for longer. What it has received already is lost. If the predecessor goes on,
        // its first socket receives everything.
        stopReceiving(fd);
        close(fd);
      }
      ports.push(...(await Promise.all(unpacked.ports.map((port) => this.#host.adoptPort(port)))));
      await this.#adoptRecords(unpacked.records, ports);
    }
    return ports.map(({ spec: { port, ...spec } }) => ({ ...spec, localPort: port }));
  }

  async #adoptRecords(records: readonly LiveRecord[], ports: readonly Assigned[]): Promise<void> {
    const byWorker = new Map<WorkerThread, LiveRecord[]>();
    for (const record of records) {
      const { worker, id: port } = this.#ownerOf(record, ports);
      const own = byWorker.get(worker) ?? [];
      own.push({ ...record, port });
      byWorker.set(worker, own);
    }
    const failures = await Promise.all(
      Array.from(byWorker, ([worker, own]) => worker.change({ kind: 'adopt', records: own })),
    );
    const err = failures.find((failure) => failure !== undefined);
    if (err !== undefined) throw new Error(`cannot take over connections: ${err}`);
  }

  #ownerOf(record: LiveRecord, ports: readonly Assigned[]): Omit<Assigned, 'spec'> {
    const { port } = record;
    const protocol = protocolOf(record);
    if (port === CLOSED_PORT && protocol === 'TCP') return { id: NO_PORT, worker: this.#host.leastLoaded() };
    const owner = ports[port];
    if (owner?.spec.protocol === protocol) return owner;
    throw new Error(`a record belongs to the ${protocol} port ${port}, which does not exist`);
  }
}

function protocolOf({ kind }: LiveRecord): ProxiedProtocol {
  return kind === 'flow' || kind === 'waiting' ? 'UDP' : 'TCP';
}
