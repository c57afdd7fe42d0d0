import { type Endpoint, endpointName, type SetWeight } from '../model/endpoint.ts';
import type { ServiceTracker } from '../services/service-tracker.ts';
import type { Controller } from './controller.ts';

export const MAX_WEIGHTS = 10_000;

interface WeightedPipeline {
  readonly tracker: Pick<ServiceTracker, 'setWeights'>;
  readonly controller: Pick<Controller, 'trackerChanged'>;
}

/** The weights that an operator has set on this node, in all address families. A drained endpoint has the weight 0. */
export class Weights {
  readonly #pipelines: readonly WeightedPipeline[];
  /** By {@link endpointName}. */
  readonly #set = new Map<string, SetWeight>();

  constructor(pipelines: readonly WeightedPipeline[]) {
    this.#pipelines = pipelines;
  }

  /** The first that was set first. */
  list(): readonly SetWeight[] {
    return [...this.#set.values()];
  }

  /** `undefined` where no operator has set one. */
  of(endpoint: Endpoint): number | undefined {
    // Called very often, while nearly always none is set.
    return this.#set.size === 0 ? undefined : this.#set.get(endpointName(endpoint))?.weight;
  }

  /** `weight`: `undefined` takes back what was set. `false` beyond {@link MAX_WEIGHTS}. */
  set({ address, port }: Endpoint, weight: number | undefined): boolean {
    const name = endpointName({ address, port });
    const before = this.#set.get(name);
    if (before?.weight === weight) return true;
    if (before === undefined && this.#set.size >= MAX_WEIGHTS) return false;
    if (weight === undefined) this.#set.delete(name);
    else this.#set.set(name, { address, port, weight, ...(weight === 0 && before && { before: before.weight }) });
    this.#apply();
    return true;
  }

  /** Gives a drained endpoint the weight that was set before, if there was one. Whether it was drained. */
  undrain(endpoint: Endpoint): boolean {
    const drained = this.#set.get(endpointName(endpoint));
    if (drained?.weight !== 0) return false;
    this.set(endpoint, drained.before);
    return true;
  }

  replace(all: readonly SetWeight[]): void {
    this.#set.clear();
    for (const each of all) this.#set.set(endpointName(each), each);
    this.#apply();
  }

  #apply(): void {
    for (const { tracker, controller } of this.#pipelines) {
      tracker.setWeights(this.#set.values());
      controller.trackerChanged();
    }
  }
}
