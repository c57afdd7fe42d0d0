import { COUNTERS, type Counters } from '../../model/data-plane.ts';

export function newCounters(): Counters {
  return Object.fromEntries(COUNTERS.map((name) => [name, 0])) as Counters;
}
