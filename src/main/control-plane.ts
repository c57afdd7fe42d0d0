import type { AdoptedPort } from '../contracts/hand-over.ts';
import type { SourceSink } from '../contracts/source.ts';
import type { NodeTopology } from '../model/node-topology.ts';
import type { SourceEvent } from '../model/source-event.ts';
import type { FamilyMetrics } from '../telemetry/kube-proxy-metrics.ts';
import type { Pipeline } from './pipeline.ts';

/** The pipelines of all families, of which each sees every event. */
export class ControlPlane implements SourceSink {
  readonly #pipelines: readonly Pipeline[];
  readonly #metrics: Pick<FamilyMetrics, 'changed'>;
  #isSynced = false;

  constructor(pipelines: readonly Pipeline[], metrics: Pick<FamilyMetrics, 'changed'>) {
    this.#pipelines = pipelines;
    this.#metrics = metrics;
  }

  apply(events: readonly SourceEvent[]): void {
    const services = events.filter((event) => event.kind === 'Service').length;
    this.#metrics.changed('service', services);
    this.#metrics.changed('endpoint', events.length - services);
    for (const { controller } of this.#pipelines) controller.apply(events);
  }

  /** The source has delivered everything once. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** All that the source has said is known to the listeners, and so to whoever looks at them. */
  get hasCaughtUp(): boolean {
    return this.#pipelines.every(({ controller }) => controller.hasCaughtUp);
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

  /** The node's own address may be another one. */
  rulesMayDiffer(): void {
    for (const { controller } of this.#pipelines) controller.portalsChanged();
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
    for (const { controller } of this.#pipelines) void controller.start();
  }

  async pause(): Promise<void> {
    await Promise.all(this.#pipelines.map(({ controller }) => controller.pause()));
  }

  resume(): void {
    for (const { controller } of this.#pipelines) controller.resume();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#pipelines.map(({ controller }) => controller.stop()));
  }
}
