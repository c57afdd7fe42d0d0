import '../support/private-netns.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import { createFastDataPlane } from '../../src/engine/fast/create.ts';
import type { Address } from '../../src/model/address.ts';
import type { ClientFacts } from '../../src/model/client-address.ts';
import type { ConnectionLogSink } from '../../src/model/connection-log.ts';
import type { Backends, DataPlane, ListenerStats, ListenSpec, OpenConnection } from '../../src/model/data-plane.ts';
import type { Endpoint } from '../../src/model/endpoint.ts';
import type { ListenerId } from '../../src/model/service-port.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { passOn } from '../engine/fast/pass-on.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { WORKER_SCRIPT } from '../support/worker-script.ts';
import { dataPlaneCompliance, type EngineFactory } from './data-plane.ts';

/**
 * Between the first two hand-overs; each further one takes twice as long. Deadlines begin anew with each, so in between
 * there must come a time in which they pass.
 */
const FIRST_PAUSE_MS = 50;

/** Hands over to a new data plane again and again, whatever is going on. */
class WanderingDataPlane implements DataPlane {
  readonly dialsBeginAnew = true;
  readonly #create: () => Promise<DataPlane>;
  #current: DataPlane;
  #facts: ClientFacts | undefined;
  #isOver = false;
  #connectionLog: ConnectionLogSink | undefined;
  /** Settles when the calls and the hand-over before are done. */
  #last: Promise<unknown> = Promise.resolve();
  #isHandingOver = false;
  readonly #wandering: Promise<void>;

  constructor(create: () => Promise<DataPlane>, first: DataPlane) {
    this.#create = create;
    this.#current = first;
    this.#wandering = this.#wander();
  }

  open(spec: ListenSpec, backends: Backends): Promise<number> {
    return this.#inTurn(() => this.#current.open(spec, backends));
  }

  update(id: ListenerId, backends: Backends): void {
    if (this.#isHandingOver) void this.#inTurn(async () => this.#current.update(id, backends));
    else this.#current.update(id, backends);
  }

  knowClients(facts: ClientFacts): void {
    this.#facts = facts;
    this.#current.knowClients(facts);
  }

  logConnections(sink: ConnectionLogSink | undefined): void {
    this.#connectionLog = sink;
    this.#current.logConnections(sink);
  }

  close(id: ListenerId): Promise<void> {
    return this.#inTurn(() => this.#current.close(id));
  }

  stats(): Iterable<ListenerStats> {
    return this.#current.stats();
  }

  statsOf(id: ListenerId): ListenerStats | undefined {
    return this.#current.statsOf(id);
  }

  /** Not across a hand-over, which ends a listing. */
  async *connections(id: ListenerId): AsyncIterable<readonly OpenConnection[]> {
    const whole = await this.#inTurn(async () => {
      const pieces: (readonly OpenConnection[])[] = [];
      for await (const piece of this.#current.connections(id)) pieces.push(piece);
      return pieces;
    });
    for (const piece of whole) if (this.statsOf(id) !== undefined) yield piece;
  }

  nextPick(id: ListenerId, client: Address): Promise<Endpoint | undefined> {
    return this.#inTurn(() => this.#current.nextPick(id, client));
  }

  async settled(): Promise<void> {
    await this.#last;
  }

  async stay(): Promise<void> {
    this.#isOver = true;
    await this.#wandering;
  }

  async shutdown(): Promise<void> {
    await this.stay();
    await this.#current.shutdown();
  }

  async #wander(): Promise<void> {
    for (let pauseMs = FIRST_PAUSE_MS; !this.#isOver; await this.#rest(pauseMs), pauseMs *= 2) {
      const next = await this.#create();
      if (this.#facts !== undefined) next.knowClients(this.#facts);
      await this.#inTurn(async () => {
        this.#isHandingOver = true;
        next.logConnections(this.#connectionLog);
        await passOn(this.#current, next);
        this.#current = next;
        this.#isHandingOver = false;
      });
    }
  }

  async #rest(ms: number): Promise<void> {
    const until = performance.now() + ms;
    while (!this.#isOver && performance.now() < until) await sleep(Math.min(ms, FIRST_PAUSE_MS));
  }

  #inTurn<Result>(call: () => Promise<Result>): Promise<Result> {
    const result = this.#last.then(call);
    this.#last = result.catch(() => {});
    return result;
  }
}

const create: EngineFactory = ({ options, ...setup }) =>
  createFastDataPlane({
    ...setup,
    // With a second one, so many dials would begin anew that no turn is sure.
    options: { ...options, workers: 1 },
    clock: systemClock,
    log: new RecordingLog(),
    entry: WORKER_SCRIPT,
  });

dataPlaneCompliance('the fast engine, handed over again and again', async (setup) => {
  const first = await create(setup);
  return new WanderingDataPlane(async () => create(setup), first);
});
