/** Nobody plays: a place behind the last. */
const NONE = -1;

/**
 * Knows which of a fixed number of places has the lowest cost; of equals, the one that has not won for the longest. It
 * keeps the winner of each pair, of each pair of pairs and so on, so a change costs a comparison per level: 0.1 µs
 * among a thousand, where a scan takes 1 to 3 µs (`scripts/bench pick`).
 */
export class Tournament {
  readonly #costs: Float64Array;
  readonly #wonAt: Float64Array;
  /** `[1]` is the winner of all; `[i]` is the better of `[2i]` and `[2i + 1]`; the second half are the places. */
  readonly #winners: Int32Array;
  readonly #leaves: number;
  #wins = 0;

  /** `wonAt`: of another tournament. */
  constructor(costs: readonly number[], wonAt: readonly number[] = []) {
    this.#costs = Float64Array.from(costs);
    this.#wonAt = Float64Array.from(costs, (_, place) => wonAt[place] ?? place - costs.length);
    this.#wins = this.#wonAt.reduce((latest, at) => Math.max(latest, at), 0);
    this.#leaves = 2 ** Math.ceil(Math.log2(Math.max(1, costs.length)));
    this.#winners = new Int32Array(2 * this.#leaves).fill(NONE);
    for (let place = 0; place < costs.length; place++) this.#winners[this.#leaves + place] = place;
    for (let node = this.#leaves - 1; node > 0; node--) this.#play(node);
  }

  costOf(place: number): number {
    return this.#costs[place] as number;
  }

  set(place: number, cost: number): void {
    this.#costs[place] = cost;
    this.#changed(place);
  }

  /** Of equals it is the last from now on. */
  won(place: number): void {
    this.#wonAt[place] = ++this.#wins;
    this.#changed(place);
  }

  /** -1 when there are no places. */
  get winner(): number {
    return this.#winners[1] as number;
  }

  /** Among those that are allowed; -1 when nobody is. Each that is not costs two comparisons per level. */
  winnerOf(isAllowed: (place: number) => boolean): number {
    return this.#winnerBelow(1, isAllowed);
  }

  /** For another tournament: smaller numbers with the same order. */
  record(): readonly number[] {
    const places = [...this.#wonAt.keys()].toSorted((a, b) => this.#at(a) - this.#at(b));
    const ranks = new Array<number>(places.length);
    for (const [rank, place] of places.entries()) ranks[place] = rank;
    return ranks;
  }

  #changed(place: number): void {
    for (let node = (this.#leaves + place) >> 1; node > 0; node >>= 1) this.#play(node);
  }

  #winnerBelow(node: number, isAllowed: (place: number) => boolean): number {
    const winner = this.#winners[node] as number;
    if (winner === NONE || isAllowed(winner)) return winner;
    if (node >= this.#leaves) return NONE;
    return this.#better(this.#winnerBelow(2 * node, isAllowed), this.#winnerBelow(2 * node + 1, isAllowed));
  }

  #play(node: number): void {
    this.#winners[node] = this.#better(this.#winners[2 * node] as number, this.#winners[2 * node + 1] as number);
  }

  #better(a: number, b: number): number {
    if (a === NONE || b === NONE) return a === NONE ? b : a;
    const difference = (this.#costs[a] as number) - (this.#costs[b] as number);
    if (difference !== 0) return difference < 0 ? a : b;
    return this.#at(a) <= this.#at(b) ? a : b;
  }

  #at(place: number): number {
    return this.#wonAt[place] as number;
  }
}
