import type { Member } from '../member.ts';

/** Divides the numbers from 0 to 1 among members, in proportion to their weights. */
export class Shares {
  readonly #count: number;
  /** The end of each share, in weights; `undefined` when all are equal, as nearly always. */
  readonly #ends: Float64Array | undefined;

  constructor(members: readonly Member[]) {
    this.#count = members.length;
    if (members.every(({ weight }) => weight === members[0]?.weight)) return;
    this.#ends = new Float64Array(members.length);
    let end = 0;
    for (const [index, { weight }] of members.entries()) this.#ends[index] = end += weight;
  }

  /** The index of the share that holds `fraction`, which is below 1. */
  at(fraction: number): number {
    const ends = this.#ends;
    if (ends === undefined) return Math.floor(fraction * this.#count);
    const point = fraction * (ends[this.#count - 1] as number);
    let [low, high] = [0, this.#count - 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (point < (ends[middle] as number)) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

/** Another number from 0 to 1, spread over all of them when `fraction` is spread over a small part. */
export function spread(fraction: number, attempt: number): number {
  const scaled = fraction * 7919 ** attempt;
  return scaled - Math.floor(scaled);
}
