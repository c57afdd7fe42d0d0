import type { Member } from '../member.ts';
import { byName, type Except, onward, type Scheduler } from './scheduler.ts';

/** `fo`: the highest weight gets everything, until it is gone. Of equals, the first by name, on every node. */
export class Failover implements Scheduler {
  #members: readonly Member[] = [];

  update(members: readonly Member[]): void {
    this.#members = members.toSorted((a, b) => b.weight - a.weight || byName(a, b));
  }

  choose(_client: string, _nowMs: number, except?: Except): Member | undefined {
    return onward(this.#members, 0, except);
  }
}
