import { seededRandom } from './seeded-random.ts';

/** Decisions that repeat with the seed. */
export class Draws {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
  }

  below(n: number): number {
    return Math.floor(this.#random() * n);
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  /** True once in `n`. */
  once(n: number): boolean {
    return this.below(n) === 0;
  }
}
