/**
 * How a listener chooses among its endpoints; the names are those of IPVS (`ipvsadm` -s), but for `random`
 * (docs/schedulers.md). To add one: its file and its line in `src/services/schedulers/`, its name here, and the docs.
 */
export const SCHEDULERS = ['rr', 'random', 'wrr', 'lc', 'wlc', 'sed', 'nq', 'sh', 'mh', 'twos', 'fo'] as const;

export type SchedulerName = (typeof SCHEDULERS)[number];

export const DEFAULT_SCHEDULER: SchedulerName = 'rr';

/** As IPVS: 0 is no new connections. */
export const MAX_WEIGHT = 65_535;

/** The longest `kube-userspace-proxy/slow-start`. */
export const MAX_SLOW_START_MS = 3_600_000;
