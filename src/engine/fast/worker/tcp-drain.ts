import type { Backends } from '../../../model/data-plane.ts';
import { type Departure, Departures } from '../../../services/departures.ts';
import { Deadline } from './deadlines.ts';
import type { PortState } from './port-state.ts';

/** Ends the connections of one listener to endpoints that have gone for good. */
export class TcpDrain {
  readonly #port: PortState;
  readonly #departures = new Departures();

  constructor(port: PortState) {
    this.#port = port;
  }

  update(backends: Backends): void {
    this.#await(this.#departures.update(backends));
  }

  connected(endpoint: string): void {
    this.#await(this.#departures.connected(endpoint));
  }

  end(departure: Departure): void {
    const gone = this.#departures.end(departure);
    if (gone.size === 0) return;
    // Looking at all connections of the worker costs less than lists of those of each endpoint would.
    this.#port.worker.loop.forEachHandler((handler) => handler.endpointsGone?.(this.#port, gone));
  }

  #await(departure: Departure | undefined): void {
    if (departure === undefined) return;
    const { loop, options } = this.#port.worker;
    loop.deadlines.after(options.endpointDrainTimeoutMs).start(new Drained(this, departure), loop.nowMs);
  }
}

class Drained extends Deadline {
  readonly #drain: TcpDrain;
  readonly #departure: Departure;

  constructor(drain: TcpDrain, departure: Departure) {
    super();
    this.#drain = drain;
    this.#departure = departure;
  }

  onDue(): void {
    this.#drain.end(this.#departure);
  }
}
