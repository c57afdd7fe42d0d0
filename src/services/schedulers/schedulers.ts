import type { SchedulerName } from '../../model/scheduler.ts';
import type { Random } from '../../util/clock.ts';
import { Failover } from './failover.ts';
import { LeastLoad, LOAD_COSTS } from './least-load.ts';
import { Maglev } from './maglev.ts';
import type { MaglevTables } from './maglev-tables.ts';
import { PowerOfTwo } from './power-of-two.ts';
import { RandomChoice } from './random.ts';
import { RoundRobin } from './round-robin.ts';
import type { Scheduler } from './scheduler.ts';
import { SourceHash } from './source-hash.ts';
import { WeightedRoundRobin } from './weighted-round-robin.ts';

export interface SchedulerSetup {
  readonly random: Random;
  readonly slowStartMs: number;
  readonly maglevTables: MaglevTables;
}

const MAKERS: Readonly<Record<SchedulerName, (setup: SchedulerSetup) => Scheduler>> = {
  rr: () => new RoundRobin(),
  random: ({ random }) => new RandomChoice(random),
  wrr: () => new WeightedRoundRobin(),
  lc: ({ slowStartMs }) => new LeastLoad(LOAD_COSTS.lc, slowStartMs),
  wlc: ({ slowStartMs }) => new LeastLoad(LOAD_COSTS.wlc, slowStartMs),
  sed: ({ slowStartMs }) => new LeastLoad(LOAD_COSTS.sed, slowStartMs),
  nq: ({ slowStartMs }) => new LeastLoad(LOAD_COSTS.nq, slowStartMs),
  sh: () => new SourceHash(),
  mh: ({ maglevTables }) => new Maglev(maglevTables),
  twos: ({ random, slowStartMs }) => new PowerOfTwo(random, slowStartMs),
  fo: () => new Failover(),
};

export function createScheduler(name: SchedulerName, setup: SchedulerSetup): Scheduler {
  return MAKERS[name](setup);
}
