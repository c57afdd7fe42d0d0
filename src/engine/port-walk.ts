import type { LocalPorts } from '../kernel/local-ports.ts';

/** How far a dial is in its search for a local port. */
export interface PortSearch {
  /** The place of the first port; -1 before it is known. */
  first: number;
  /** Steps made so far. */
  steps: number;
}

/** Thrown by an engine that cannot return it: no local port is found yet, and the search goes on in a later turn. */
export const STILL_SEARCHING = new Error('no local port is found yet');

export function newPortSearch(): PortSearch {
  return { first: -1, steps: 0 };
}

/**
 * The order in which the ports of a range are tried: each of them once, from any first one. The steps are large,
 * because taken ports lie together, and a client's next connection often has its next port.
 */
export class PortWalk {
  readonly #first: number;
  readonly #size: number;
  readonly #stride: number;
  readonly #reserved: ReadonlySet<number>;

  constructor({ range: { first, last }, reserved }: LocalPorts) {
    this.#first = first;
    this.#size = last - first + 1;
    this.#reserved = reserved;
    this.#stride = strideThrough(this.#size);
  }

  /** The place of this port; of one that is not in the range, a place that follows from it. */
  placeOf(port: number): number {
    const place = (port - this.#first) % this.#size;
    return place < 0 ? place + this.#size : place;
  }

  /** `random`: 0 to 1. */
  anyPlace(random: number): number {
    return Math.floor(random * this.#size);
  }

  /** The next port that is not reserved; `undefined` after all of them. */
  next(search: PortSearch): number | undefined {
    while (search.steps < this.#size) {
      const port = this.#first + ((search.first + search.steps++ * this.#stride) % this.#size);
      if (!this.#reserved.has(port)) return port;
    }
    return undefined;
  }
}

/** Leads to all places before it comes back to the first: it has no divisor in common with `size`. */
function strideThrough(size: number): number {
  // Multiples of the golden ratio lie far apart, however many there are.
  for (let stride = Math.max(1, Math.round(size * 0.618)); ; stride++) if (divisor(stride, size) === 1) return stride;
}

function divisor(one: number, other: number): number {
  return other === 0 ? one : divisor(other, one % other);
}
