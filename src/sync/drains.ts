import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { ServiceTracker } from '../services/service-tracker.ts';
import type { Controller } from './controller.ts';

/** Each costs memory and a little time at every change, even after the endpoint has gone for good. */
export const MAX_DRAINED = 10_000;

/** Of one address family. */
export interface DrainedPipeline {
  readonly tracker: Pick<ServiceTracker, 'setDrained'>;
  readonly controller: Pick<Controller, 'trackerChanged'>;
}

/** The endpoints that an operator has drained, in every address family. */
export class Drains {
  readonly #pipelines: readonly DrainedPipeline[];
  /** By {@link endpointName}. */
  readonly #endpoints = new Map<string, Endpoint>();

  constructor(pipelines: readonly DrainedPipeline[]) {
    this.#pipelines = pipelines;
  }

  /** In the order in which they were drained. */
  list(): readonly Endpoint[] {
    return [...this.#endpoints.values()];
  }

  has(endpoint: Endpoint): boolean {
    // Called for very many endpoints while, nearly always, none is drained.
    return this.#endpoints.size > 0 && this.#endpoints.has(endpointName(endpoint));
  }

  /** `false` when there are {@link MAX_DRAINED} others. */
  drain(endpoint: Endpoint): boolean {
    if (this.has(endpoint)) return true;
    if (this.#endpoints.size >= MAX_DRAINED) return false;
    this.#endpoints.set(endpointName(endpoint), endpoint);
    this.#apply();
    return true;
  }

  /** `false` when it was not drained. */
  undrain(endpoint: Endpoint): boolean {
    if (!this.#endpoints.delete(endpointName(endpoint))) return false;
    this.#apply();
    return true;
  }

  /** Takes over what another process had drained. */
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
