import { Tournament } from '../../util/tournament.ts';
import type { Member } from '../member.ts';
import { type Except, lowest, type Scheduler } from './scheduler.ts';
import { shareOf } from './slow-start.ts';

/** The lowest gets the next connection. `share`: below 1 during a slow start. */
type Cost = (open: number, weight: number, share: number) => number;

const connections: Cost = (open, _weight, share) => (open + 1 - share) / share;
const weighted: Cost = (open, weight, share) => (open + 1 - share) / (weight * share);
const shortestDelay: Cost = (open, weight, share) => (open + 1) / (weight * share);
const neverQueue: Cost = (open, weight, share) => (open === 0 && share === 1 ? 0 : shortestDelay(open, weight, share));

/** As IPVS defines them (`net/netfilter/ipvs/ip_vs_lc.c`, `_wlc.c`, `_sed.c`, `_nq.c`); equals take turns here. */
export const LOAD_COSTS = { lc: connections, wlc: weighted, sed: shortestDelay, nq: neverQueue } as const;

/** How often shares grow during a slow start. */
const STEPS = 100;

/** `lc`, `wlc`, `sed`, `nq`: the member with the least load by open connections. */
export class LeastLoad implements Scheduler {
  readonly #cost: Cost;
  readonly #slowStartMs: number;
  #members: readonly Member[] = [];
  #costs = new Tournament([]);
  /** In their slow start. */
  #young: readonly Member[] = [];
  #nowMs = Number.NEGATIVE_INFINITY;

  constructor(cost: Cost, slowStartMs: number) {
    this.#cost = cost;
    this.#slowStartMs = slowStartMs;
  }

  update(members: readonly Member[]): void {
    this.#members = members;
    this.#young = this.#slowStartMs > 0 ? members.filter(({ sinceMs }) => Number.isFinite(sinceMs)) : [];
    this.#costs = new Tournament(members.map((member) => this.#costOf(member)));
  }

  choose(_client: string, nowMs: number, except?: Except): Member | undefined {
    if (this.#young.length > 0 && nowMs >= this.#nowMs + this.#slowStartMs / STEPS) this.#grow(nowMs);
    return lowest(this.#members, this.#costs, except);
  }

  moved({ position }: Member): void {
    this.#costs.won(position);
  }

  loadChanged(member: Member): void {
    this.#costs.set(member.position, this.#costOf(member));
  }

  record(): readonly number[] {
    return this.#costs.record();
  }

  restore(wonAt: readonly number[]): void {
    const costs = this.#members.map((member) => this.#costOf(member));
    this.#costs = new Tournament(costs, wonAt);
  }

  #costOf(member: Member): number {
    return this.#cost(member.open, member.weight, shareOf(member, this.#slowStartMs, this.#nowMs));
  }

  #grow(nowMs: number): void {
    this.#nowMs = nowMs;
    for (const member of this.#young) this.loadChanged(member);
    this.#young = this.#young.filter((member) => shareOf(member, this.#slowStartMs, nowMs) < 1);
  }
}
