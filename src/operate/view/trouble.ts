import type { Counter, Counters } from '../../model/data-plane.ts';

/** Something that clients of a listener may meet, and by which counters it shows. */
export interface Trouble {
  readonly counters: readonly Counter[];
  /** A clause for operators, of what was counted within the last minute. */
  readonly reason: string;
}

/** The worst first. */
export const TROUBLES: readonly Trouble[] = [
  {
    counters: ['exhausted', 'noEndpoints'],
    reason: 'clients were turned away during the last minute, for no endpoint answered',
  },
  {
    counters: ['pauses'],
    reason: 'new clients had to wait during the last minute, for descriptors had run out',
  },
  {
    counters: ['limited'],
    reason: 'UDP datagrams were dropped during the last minute, at a bound on flows or for want of buffers',
  },
  {
    counters: ['failedRefused', 'failedTimeout', 'failedUnreachable', 'failedOther'],
    reason: 'connections to an endpoint failed during the last minute',
  },
];

export function countOf({ counters: names }: Trouble, counters: Readonly<Counters>): number {
  return names.reduce((sum, name) => sum + counters[name], 0);
}

/** Of what several listeners have met. */
export function worst(troubles: readonly (Trouble | undefined)[]): Trouble | undefined {
  return TROUBLES.find((trouble) => troubles.includes(trouble));
}
