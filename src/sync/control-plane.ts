import type { Address, Cidr, IpFamily } from '../model/address.ts';
import type { NodeTopology } from '../model/endpoint.ts';
import type { AdoptedPort } from '../model/hand-over.ts';
import type { SourceEvent, SourceSink } from '../model/source.ts';
import type { ServiceTracker } from '../services/service-tracker.ts';
import type { Clock } from '../util/clock.ts';
import { eachInSlices } from '../util/wait.ts';
import type { Controller } from './controller.ts';
import type { Listeners } from './listeners.ts';
import type { ServedFamilies } from './served-families.ts';

/** From events to listeners, rules and flows, within one address family. */
export interface FamilyPipeline {
  readonly family: IpFamily;
  readonly bindAddress: Address;
  readonly tracker: ServiceTracker;
  readonly listeners: Listeners;
  readonly controller: Controller;
}

export interface ControlPlaneOptions<Pipeline extends FamilyPipeline> {
  /** The primary one first. */
  readonly pipelines: readonly Pipeline[];
  readonly served: Pick<ServedFamilies, 'has' | 'add'>;
  readonly onServed: (family: IpFamily) => void;
  readonly clock: Clock;
}

/**
 * The pipelines of all families. The pipeline of a family that the node cannot serve yet is dormant: it gets no events
 * and writes nothing, and keeps what a predecessor has installed.
 */
export class ControlPlane<Pipeline extends FamilyPipeline = FamilyPipeline> implements SourceSink {
  readonly #options: ControlPlaneOptions<Pipeline>;
  #isRunning = false;
  #isSynced = false;

  constructor(options: ControlPlaneOptions<Pipeline>) {
    this.#options = options;
  }

  /** Of the served families, the primary one first. */
  get active(): readonly Pipeline[] {
    const { pipelines, served } = this.#options;
    return pipelines.filter(({ family }) => served.has(family));
  }

  /** Between {@link start} and {@link pause} or {@link stop}. */
  get isRunning(): boolean {
    return this.#isRunning;
  }

  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** The listeners know everything that the source has delivered. */
  get hasCaughtUp(): boolean {
    return this.active.every(({ controller }) => controller.hasCaughtUp);
  }

  /** Serves another family, with everything that the others know. Only while this runs. */
  async activate(family: IpFamily): Promise<void> {
    const { pipelines, served, onServed, clock } = this.#options;
    const pipeline = pipelines.find((each) => each.family === family);
    const [other] = this.active;
    if (pipeline === undefined || other === undefined || served.has(family) || !this.#isRunning) return;
    // First, so that it sees changes while it learns the rest.
    served.add(family);
    onServed(family);
    await eachInSlices(clock, other.tracker.contents(), (events) => pipeline.controller.apply(events));
    // Otherwise it starts when this resumes.
    if (this.#isRunning) void pipeline.controller.start();
  }

  apply(events: readonly SourceEvent[]): void {
    for (const { controller } of this.active) controller.apply(events);
  }

  synced(): void {
    this.#isSynced = true;
    for (const { controller } of this.#options.pipelines) controller.synced();
  }

  setTopology(topology: NodeTopology): void {
    for (const { tracker, controller } of this.#options.pipelines) {
      tracker.setTopology(topology);
      controller.trackerChanged();
    }
  }

  /** See `Capture.dropUnassigned`. */
  dropUnassigned(blocks: readonly Cidr[]): void {
    for (const { controller } of this.#options.pipelines) controller.dropUnassigned(blocks);
  }

  /** Throws a sentence when this process would listen elsewhere. */
  adopt(ports: readonly AdoptedPort[]): void {
    const { pipelines } = this.#options;
    const elsewhere = ports.find(({ address }) => pipelines.every(({ bindAddress }) => bindAddress !== address));
    if (elsewhere !== undefined) {
      throw new Error(`the listeners are at ${elsewhere.address}; to change --bind-address, restart`);
    }
    for (const { family, listeners } of pipelines) listeners.adopt(ports.filter((port) => port.family === family));
  }

  start(): void {
    this.#isRunning = true;
    for (const { controller } of this.active) void controller.start();
  }

  async pause(): Promise<void> {
    this.#isRunning = false;
    await Promise.all(this.active.map(({ controller }) => controller.pause()));
  }

  resume(): void {
    this.#isRunning = true;
    for (const { controller } of this.active) controller.resume();
  }

  async stop(): Promise<void> {
    this.#isRunning = false;
    await Promise.all(this.active.map(({ controller }) => controller.stop()));
  }
}
