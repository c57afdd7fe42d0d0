import type { Backends } from '../../model/data-plane.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { type Departure, Departures } from '../../services/departures.ts';
import type { Clock } from '../../util/clock.ts';

export interface TcpDrainOptions {
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** What is connected to one of these endpoints is to end. */
  readonly onGone: (names: ReadonlySet<string>) => void;
}

/** Ends the connections of one listener to endpoints that have gone for good. */
export class TcpDrain {
  readonly #options: TcpDrainOptions;
  readonly #departures = new Departures();

  constructor(options: TcpDrainOptions) {
    this.#options = options;
  }

  update(backends: Backends): void {
    this.#await(this.#departures.update(backends));
  }

  connected(endpoint: Endpoint): void {
    this.#await(this.#departures.connected(endpointName(endpoint)));
  }

  #await(departure: Departure | undefined): void {
    if (departure === undefined) return;
    const { clock, timeoutMs, onGone } = this.#options;
    // Nobody cancels it: after a shutdown there is no connection left to end.
    clock.after(timeoutMs, () => onGone(this.#departures.end(departure)));
  }
}
