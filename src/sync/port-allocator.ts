import type { Random } from '../contracts/clock.ts';
import type { PortRange } from '../model/port-range.ts';

/**
 * Chooses local ports. Without a range it answers 0: the kernel chooses, and knows what is free. With one, ports are
 * drawn at random, so that a restarted proxy seldom reuses the port another Service had (stale conntrack entries
 * would lead there).
 */
export class PortAllocator {
  readonly #range: PortRange | undefined;
  readonly #random: Random;
  readonly #taken = new Set<number>();

  constructor(range: PortRange | undefined, random: Random) {
    this.#range = range;
    this.#random = random;
  }

  /** How many ports there are to try before giving up. */
  get size(): number {
    return this.#range === undefined ? 1 : this.#range.last - this.#range.first + 1;
  }

  /** A port to try that is neither taken nor in `except`; `undefined` when the range is used up. */
  take(except: ReadonlySet<number>): number | undefined {
    if (this.#range === undefined) return 0;
    const { first } = this.#range;
    const start = Math.floor(this.#random() * this.size);
    for (let step = 0; step < this.size; step++) {
      const port = first + ((start + step) % this.size);
      if (this.#taken.has(port) || except.has(port)) continue;
      this.#taken.add(port);
      return port;
    }
    return undefined;
  }

  release(port: number): void {
    this.#taken.delete(port);
  }
}
