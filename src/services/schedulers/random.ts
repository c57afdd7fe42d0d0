import type { Random } from '../../util/clock.ts';
import type { Member } from '../member.ts';
import { drawn, type Except, type Scheduler } from './scheduler.ts';
import { Shares, spread } from './shares.ts';

/** `random`: in proportion to weights, as kube-proxy's mode iptables does without weights. */
export class RandomChoice implements Scheduler {
  readonly #random: Random;
  #members: readonly Member[] = [];
  #shares = new Shares([]);
  /** Drawn before it is needed, so that a look ahead is true. */
  #fraction: number;

  constructor(random: Random) {
    this.#random = random;
    this.#fraction = random();
  }

  update(members: readonly Member[]): void {
    this.#members = members;
    this.#shares = new Shares(members);
  }

  choose(_client: string, _nowMs: number, except?: Except): Member | undefined {
    return drawn(this.#members, (attempt) => this.#shares.at(spread(this.#fraction, attempt)), except);
  }

  moved(): void {
    this.#fraction = this.#random();
  }
}
