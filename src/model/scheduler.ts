import type { Found } from '../util/found.ts';

/**
 * How a listener chooses among its endpoints; the names are those of IPVS (`ipvsadm` -s), but for `random`
 * (docs/schedulers.md). CONTRIBUTING.md says how to add one.
 */
export const SCHEDULERS = ['rr', 'random', 'wrr', 'lc', 'wlc', 'sed', 'nq', 'sh', 'mh', 'twos', 'fo'] as const;

export type SchedulerName = (typeof SCHEDULERS)[number];

export const DEFAULT_SCHEDULER: SchedulerName = 'rr';

/** As IPVS: 0 is no new connections. */
export const MAX_WEIGHT = 65_535;

/** Schedulers of IPVS that are left out, and why. */
const REASONS: Readonly<Record<string, Found>> = {
  dh: {
    found: 'it chooses by the destination, and a Service port is one destination',
    advice: 'sh chooses by the client',
  },
  lblc: {
    found: 'it keeps a destination at one endpoint, and a Service port is one destination',
    advice: 'lc chooses by load alone',
  },
  lblcr: {
    found: 'it keeps a destination at some endpoints, and a Service port is one destination',
    advice: 'lc chooses by load alone',
  },
  ovf: {
    found: 'it takes a weight for a number of connections, and refuses what is beyond all of them',
    advice: 'wlc or fo come near',
  },
};

/** `name` or why there is no such scheduler. */
export function findScheduler(text: string): { readonly name: SchedulerName } | Found {
  const name = SCHEDULERS.find((each) => each === text);
  if (name !== undefined) return { name };
  const reason = Object.hasOwn(REASONS, text) ? REASONS[text] : undefined;
  return reason ?? { found: 'there is no such scheduler', advice: `there are ${SCHEDULERS.join(', ')}` };
}
