import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { ServiceTracker } from '../services/service-tracker.ts';
import type { Controller } from './controller.ts';

export const MAX_DRAINED = 10_000;

interface DrainedPipeline {
  readonly tracker: Pick<ServiceTracker, 'setDrained'>;
  readonly controller: Pick<Controller, 'trackerChanged'>;
}

/** The endpoints that an operator has drained, in all address families. */
export class Drains {
  readonly #pipelines: readonly DrainedPipeline[];
  /** By {@link endpointName}. */
  readonly #endpoints = new Map<string, Endpoint>();

  constructor(pipelines: readonly DrainedPipeline[]) {
    this.#pipelines = pipelines;
  }

  /** The first drained first. */
  list(): readonly Endpoint[] {
    return [...this.#endpoints.values()];
  }

  has(endpoint: Endpoint): boolean {
    // Called very often, while nearly always none is drained.
    return this.#endpoints.size > 0 && this.#endpoints.has(endpointName(endpoint));
  }

  /** `false` beyond {@link MAX_DRAINED}. */
  drain(endpoint: Endpoint): boolean {
    if (this.has(endpoint)) return true;
    if (this.#endpoints.size >= MAX_DRAINED) return false;
    this.#endpoints.set(endpointName(endpoint), endpoint);
    this.#apply();
    return true;
  }

  undrain(endpoint: Endpoint): boolean {
    if (!this.#endpoints.delete(endpointName(endpoint))) return false;
    this.#apply();
    return true;
  }

  replace(endpoints: readonly Endpoint[]): void {
    this.#endpoints.clear();
    for (const endpoint of endpoints) this.#endpoints.set(endpointName(endpoint), endpoint);
    this.#apply();
  }

  #apply(): void {
    for (const { tracker, controller } of this.#pipelines) {
      tracker.setDrained(this.#endpoints.values());
      controller.trackerChanged();
    }
  }
}
