import { COUNTERS, type Counter, type Counters } from '../../model/data-plane.ts';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import { Member } from '../../services/member.ts';

/** Where each counter lies among those of one Service port or endpoint. */
export const COUNTER = Object.fromEntries(COUNTERS.map((name, index) => [name, index])) as Readonly<
  Record<Counter, number>
>;

/** Of endpoints that are in neither list. */
const UNREAD = newCounters();

/** One endpoint of one Service port, with its counters. */
export class Target extends Member {
  readonly counters: Float64Array;

  constructor(endpoint: NamedEndpoint, counters: Float64Array = UNREAD) {
    super(endpoint);
    this.counters = counters;
  }
}

export function newCounters(): Float64Array {
  return new Float64Array(COUNTERS.length);
}

export function add(counters: Float64Array, counter: number, amount: number): void {
  counters[counter] = (counters[counter] as number) + amount;
}

const NOTHING = Object.freeze(Object.fromEntries(COUNTERS.map((name) => [name, 0])) as unknown as Counters);

/** Of tens of thousands nearly all have counted nothing, and share one object: one of its own was 6 KB of garbage. */
export function countersOf(array: Float64Array): Readonly<Counters> {
  if (array.every(isZero)) return NOTHING;
  const counters = { ...NOTHING };
  for (const name of COUNTERS) counters[name] = array[COUNTER[name]] ?? 0;
  return counters;
}

function isZero(value: number): boolean {
  return value === 0;
}
