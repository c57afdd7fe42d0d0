import { hash32 } from '../../util/hash.ts';
import type { Member } from '../member.ts';
import { byName, drawn, type Except, type Scheduler } from './scheduler.ts';
import { Shares } from './shares.ts';

/** `sh`: a hash of the client's address decides, by weights. The same on every node and after a restart. */
export class SourceHash implements Scheduler {
  #members: readonly Member[] = [];
  #shares = new Shares([]);

  update(members: readonly Member[]): void {
    this.#members = members.toSorted(byName);
    this.#shares = new Shares(this.#members);
  }

  choose(client: string, _nowMs: number, except?: Except): Member | undefined {
    return drawn(this.#members, (attempt) => this.#shares.at(hash32(client, attempt) / 2 ** 32), except);
  }
}
