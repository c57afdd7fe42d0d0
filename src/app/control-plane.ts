import type { Metrics } from '../http/metrics.ts';
import type { IpFamily } from '../model/address.ts';
import type { NodeTopology } from '../model/endpoint.ts';
import type { AdoptedPort } from '../model/hand-over.ts';
import type { SourceEvent, SourceSink } from '../model/source.ts';
import type { Clock } from '../util/clock.ts';
import { inSlices } from '../util/wait.ts';
import type { Pipeline } from './pipeline.ts';

export interface ControlPlaneOptions {
  /** Of all families that may be served, the primary one first. */
  readonly pipelines: readonly Pipeline[];
  /** Those that can be served now. */
  readonly served: readonly IpFamily[];
  readonly metrics: Pick<Metrics, 'of' | 'serve'>;
  readonly clock: Clock;
}

/**
 * The pipelines of all families, of which each that is served sees every event. That of a family which the node cannot
 * serve yet is asleep: it knows of no Service and writes nothing, whatever a predecessor has left.
 */
export class ControlPlane implements SourceSink {
  readonly #pipelines: readonly Pipeline[];
  readonly #metrics: ControlPlaneOptions['metrics'];
  readonly #clock: Clock;
  readonly #served: Set<IpFamily>;
  #isRunning = false;
  #isSynced = false;

  constructor({ pipelines, served, metrics, clock }: ControlPlaneOptions) {
    this.#pipelines = pipelines;
    this.#served = new Set(served);
    this.#metrics = metrics;
    this.#clock = clock;
  }

  /** The pipelines of the families that are served, the primary one first. */
  get active(): readonly Pipeline[] {
    return this.#pipelines.filter(({ family }) => this.#served.has(family));
  }

  /** The families that may come to be served. */
  get dormant(): readonly IpFamily[] {
    return this.#pipelines.map(({ family }) => family).filter((family) => !this.#served.has(family));
  }

  /** Between {@link start} and {@link pause} or {@link stop}. */
  get isRunning(): boolean {
    return this.#isRunning;
  }

  /** Serves another family from now on, with all that is known by the others. Only while this runs. */
  async activate(family: IpFamily): Promise<void> {
    const pipeline = this.#pipelines.find((each) => each.family === family);
    const [other] = this.active;
    if (pipeline === undefined || other === undefined || this.#served.has(family) || !this.#isRunning) return;
    // Before anything else, so that it hears of what changes while it learns the rest.
    this.#served.add(family);
    this.#metrics.serve(family);
    const known = other.tracker.contents();
    await inSlices(this.#clock, () => {
      const { done, value: events } = known.next();
      if (!done) pipeline.controller.apply(events);
      return !done;
    });
    // Else it starts with the others, when this resumes.
    if (this.#isRunning) void pipeline.controller.start();
  }

  apply(events: readonly SourceEvent[]): void {
    const services = events.filter((event) => event.kind === 'Service').length;
    const { active } = this;
    // Families share the count.
    const metrics = active[0] && this.#metrics.of(active[0].family);
    metrics?.changed('service', services);
    metrics?.changed('endpoint', events.length - services);
    for (const { controller } of active) controller.apply(events);
  }

  /** The source has delivered everything once. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** All that the source has said is known to the listeners, and so to whoever looks at them. */
  get hasCaughtUp(): boolean {
    return this.active.every(({ controller }) => controller.hasCaughtUp);
  }

  synced(): void {
    this.#isSynced = true;
    for (const { controller } of this.#pipelines) controller.synced();
  }

  setTopology(topology: NodeTopology): void {
    for (const { tracker, controller } of this.#pipelines) {
      tracker.setTopology(topology);
      controller.trackerChanged();
    }
  }

  /** Throws a sentence when one of them is not where this process would listen. */
  adopt(ports: readonly AdoptedPort[]): void {
    const isOurs = ({ address }: AdoptedPort) => this.#pipelines.some(({ bindAddress }) => bindAddress === address);
    const elsewhere = ports.find((port) => !isOurs(port));
    if (elsewhere !== undefined) {
      throw new Error(`the listeners are at ${elsewhere.address}; to change --bind-address, restart`);
    }
    for (const { family, listeners } of this.#pipelines)
      listeners.adopt(ports.filter((port) => port.family === family));
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
