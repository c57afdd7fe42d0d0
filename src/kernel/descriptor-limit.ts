import type { Log } from '../util/log.ts';
import { readIfThere } from './files.ts';

/**
 * How many descriptors this process may have, from the text of `/proc/self/limits`. Node raises the soft limit to the
 * hard limit at start. `undefined` when there is no limit, or the text cannot be read.
 *
 *     Limit                     Soft Limit           Hard Limit           Units
 *     Max open files            1048576              1048576              files
 */
export function descriptorLimit(procLimits = readIfThere('/proc/self/limits') ?? ''): number | undefined {
  const [, soft] = /^Max open files +(\d+) /m.exec(procLimits) ?? [];
  return soft === undefined ? undefined : Number(soft);
}

/** Warns when the limit on open files is lower than the limit on UDP flows. */
export function checkDescriptorLimit(udpMaxFlows: number, log: Log): void {
  const limit = descriptorLimit();
  if (limit === undefined || limit > udpMaxFlows) return;
  log.warn(
    'The limit on open files is below --udp-max-flows, and connections need more of them; raise it (LimitNOFILE= of ' +
      'systemd, ulimit -n)',
    { limit, udpMaxFlows },
  );
}
