import { readFileSync } from 'node:fs';
import type { Log } from '../contracts/log.ts';

/**
 * How many descriptors this process may have, from the text of `/proc/self/limits`. Node has raised the soft limit to
 * the hard one when it started. `undefined` when there is none.
 *
 *     Limit                     Soft Limit           Hard Limit           Units
 *     Max open files            1048576              1048576              files
 */
export function descriptorLimit(procLimits: string): number | undefined {
  const [, soft] = /^Max open files +(\d+) /m.exec(procLimits) ?? [];
  return soft === undefined ? undefined : Number(soft);
}

/** Warns when the limit on open files ends UDP flows before their own limit does. */
export function checkDescriptorLimit(udpMaxFlows: number, log: Log): void {
  let limit: number | undefined;
  try {
    limit = descriptorLimit(readFileSync('/proc/self/limits', 'utf8'));
  } catch {
    // A sealed /proc tells nothing, so there is nothing to warn of.
  }
  if (limit === undefined || limit > udpMaxFlows) return;
  log.warn(
    'The limit on open files is below --udp-max-flows, and connections need more of them; raise it (LimitNOFILE= of ' +
      'systemd, ulimit -n)',
    { limit, udpMaxFlows },
  );
}
