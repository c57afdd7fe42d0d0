import { Tournament } from '../../util/tournament.ts';
import type { Member } from '../member.ts';
import { type Except, lowest, type Scheduler } from './scheduler.ts';

/**
 * `wrr`: strict turns in proportion to weights, mixed as evenly as they can be. A member with the weight w has its k-th
 * turn at the time (k + ½) / w, so each has exactly w turns in each unit of time. (IPVS gives the heaviest its turns
 * in a row; nginx mixes them in a like manner.)
 */
export class WeightedRoundRobin implements Scheduler {
  #members: readonly Member[] = [];
  /** The cost of each is when its next turn is. */
  #turns = new Tournament([]);
  #nowAt = 0;

  update(members: readonly Member[]): void {
    this.#members = members;
    this.#turns = new Tournament(members.map(({ weight }) => 0.5 / weight));
    this.#nowAt = 0;
  }

  choose(_client: string, _nowMs: number, except?: Except): Member | undefined {
    return lowest(this.#members, this.#turns, except);
  }

  moved({ position, weight }: Member): void {
    const time = this.#turns.costOf(position);
    this.#nowAt = Math.max(this.#nowAt, time);
    // One that was excluded for long does not get all the turns that it has missed.
    const turn = Math.max(Math.round(time * weight + 0.5), Math.floor(this.#nowAt * weight));
    this.#turns.won(position);
    this.#turns.set(position, (turn + 0.5) / weight);
  }

  record(): readonly number[] {
    const times = this.#members.map(({ position }) => this.#turns.costOf(position));
    return [this.#nowAt, ...times, ...this.#turns.record()];
  }

  restore([nowAt = 0, ...numbers]: readonly number[]): void {
    const { length } = this.#members;
    if (numbers.length !== 2 * length) return;
    this.#nowAt = nowAt;
    this.#turns = new Tournament(numbers.slice(0, length), numbers.slice(length));
  }
}
