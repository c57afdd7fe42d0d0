import type { Table } from '../contracts/iptables.ts';
import { CHAINS, PROBE_CHAIN } from './chains.ts';
import { jumpTarget, parseDump } from './dump.ts';
import { fitsOnOneLine } from './safe-spec.ts';

export interface CleanupInput {
  readonly table: Table;
  /** What `iptables-save -t table` prints now; empty where the table does not exist. */
  readonly dump: string;
}

/**
 * The text of one `iptables-restore --noflush` that takes every trace of this program, or of kube-proxy's userspace
 * mode, out of a table; `undefined` when there is none. Jumps to our chains go from whatever chain they stand in.
 */
export function planCleanup({ table, dump }: CleanupInput): string | undefined {
  const installed = parseDump(dump).get(table) ?? new Map<string, string[]>();
  const ours = new Set([...CHAINS[table], PROBE_CHAIN].filter((chain) => installed.has(chain)));
  if (ours.size === 0) return undefined;

  const jumps: string[] = [];
  const held = new Set<string>();
  for (const [chain, specs] of installed) {
    if (ours.has(chain)) continue;
    for (const spec of specs) {
      const target = jumpTarget(spec);
      if (target === undefined || !ours.has(target)) continue;
      if (fitsOnOneLine(spec)) jumps.push(`-D ${chain} ${spec}`);
      // Restore text cannot name this rule. Its chain, emptied, does nothing; trying to delete it would fail the rest.
      else held.add(target);
    }
  }
  const lines = [
    `*${table}`,
    ...[...ours].map((chain) => `:${chain} - [0:0]`),
    ...jumps,
    ...[...ours].filter((chain) => !held.has(chain)).map((chain) => `-X ${chain}`),
    'COMMIT',
  ];
  return `${lines.join('\n')}\n`;
}
