import type { Member } from '../member.ts';
import { type Except, onward, type Scheduler } from './scheduler.ts';

/** `rr`: strict turns. */
export class RoundRobin implements Scheduler {
  #members: readonly Member[] = [];
  #turn = 0;

  update(members: readonly Member[]): void {
    if (members !== this.#members) this.#turn = 0;
    this.#members = members;
  }

  choose(_client: string, _nowMs: number, except?: Except): Member | undefined {
    return onward(this.#members, this.#turn, except);
  }

  moved({ position }: Member): void {
    this.#turn = (position + 1) % this.#members.length;
  }

  record(): readonly number[] {
    return [this.#turn];
  }

  restore([turn = 0]: readonly number[]): void {
    this.#turn = this.#members.length > 0 ? turn % this.#members.length : 0;
  }
}
