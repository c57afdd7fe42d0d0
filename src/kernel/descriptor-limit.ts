import { readFileSync } from 'node:fs';
import type { Log } from '../util/log.ts';

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

/** That of this process; `undefined` also when /proc tells nothing. */
export function ownDescriptorLimit(): number | undefined {
  try {
    return descriptorLimit(readFileSync('/proc/self/limits', 'utf8'));
  } catch {
    return undefined;
  }
}

/** Warns when the limit on open files ends UDP flows before their own limit does. */
export function checkDescriptorLimit(udpMaxFlows: number, log: Log): void {
  const limit = ownDescriptorLimit();
  if (limit === undefined || limit > udpMaxFlows) return;
  log.warn(
    'The limit on open files is below --udp-max-flows, and connections need more of them; raise it (LimitNOFILE= of ' +
      'systemd, ulimit -n)',
    { limit, udpMaxFlows },
  );
}
