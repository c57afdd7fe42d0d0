import type { Backends } from '../model/data-plane.ts';
import { endpointName } from '../model/endpoint.ts';

/** Endpoints that left at the same time. */
export type Departure = ReadonlySet<string>;

/** Tracks which endpoints of a listener have left, and whether they are still gone some time later. */
export class Departures {
  #present: ReadonlySet<string> = new Set();
  /** By `endpointName`. */
  readonly #gone = new Map<string, Departure>();

  /** The endpoints that have left now, if any. Call {@link end} for them later. */
  update({ endpoints, draining = [] }: Pick<Backends, 'endpoints' | 'draining'>): Departure | undefined {
    const present = new Set([...endpoints, ...draining].map(endpointName));
    for (const name of present) this.#gone.delete(name);
    const left = [...this.#present].filter((name) => !present.has(name));
    this.#present = present;
    return this.#note(left);
  }

  /** A connection has this endpoint. Returns a departure, like {@link update}, if the endpoint has left meanwhile. */
  connected(name: string): Departure | undefined {
    return this.#present.has(name) || this.#gone.has(name) ? undefined : this.#note([name]);
  }

  /** The endpoints of a departure that have not come back since. */
  end(departure: Departure): ReadonlySet<string> {
    const gone = new Set([...departure].filter((name) => this.#gone.get(name) === departure));
    for (const name of gone) this.#gone.delete(name);
    return gone;
  }

  #note(names: readonly string[]): Departure | undefined {
    if (names.length === 0) return undefined;
    const departure = new Set(names);
    for (const name of names) this.#gone.set(name, departure);
    return departure;
  }
}
