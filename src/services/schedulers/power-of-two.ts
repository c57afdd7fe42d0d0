import type { Random } from '../../util/clock.ts';
import type { Member } from '../member.ts';
import { drawn, type Except, type Scheduler } from './scheduler.ts';
import { Shares, spread } from './shares.ts';
import { shareOf } from './slow-start.ts';

/** `twos`: the less loaded of two that are drawn in proportion to weights, as `net/netfilter/ipvs/ip_vs_twos.c`. */
export class PowerOfTwo implements Scheduler {
  readonly #random: Random;
  readonly #slowStartMs: number;
  #members: readonly Member[] = [];
  #shares = new Shares([]);
  /** Drawn before they are needed, so that a look ahead is true. */
  #first: number;
  #second: number;

  constructor(random: Random, slowStartMs: number) {
    this.#random = random;
    this.#slowStartMs = slowStartMs;
    this.#first = random();
    this.#second = random();
  }

  update(members: readonly Member[]): void {
    this.#members = members;
    this.#shares = new Shares(members);
  }

  choose(_client: string, nowMs: number, except?: Except): Member | undefined {
    const one = this.#draw(this.#first, except);
    const other = this.#draw(this.#second, except);
    if (one === undefined || other === undefined) return one;
    return this.#cost(other, nowMs) < this.#cost(one, nowMs) ? other : one;
  }

  moved(): void {
    this.#first = this.#random();
    this.#second = this.#random();
  }

  #draw(fraction: number, except: Except | undefined): Member | undefined {
    return drawn(this.#members, (attempt) => this.#shares.at(spread(fraction, attempt)), except);
  }

  #cost(member: Member, nowMs: number): number {
    return (member.open + 1) / (member.weight * shareOf(member, this.#slowStartMs, nowMs));
  }
}
