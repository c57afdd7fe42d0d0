import type { Table } from '../model/iptables.ts';
import { isOurs } from './chains.ts';
import { parseDump } from './dump.ts';
import { isKubeProxys } from './kube-proxy-chains.ts';
import { foreignJumps, textOf, transaction } from './plan.ts';

export interface CleanupInput {
  readonly table: Table;
  /** What `iptables-save -t table` prints now; empty where the table does not exist. */
  readonly dump: string;
}

/**
 * The text of one `iptables-restore --noflush` that takes every trace of this program, or of kube-proxy in any of its
 * modes, out of a table; `undefined` when there is none. Jumps to these chains go from whatever chain they stand in.
 */
export function planCleanup({ table, dump }: CleanupInput): string | undefined {
  const installed = parseDump(dump).get(table) ?? new Map<string, string[]>();
  const unwanted = [...installed.keys()].filter((chain) => isOurs(table, chain) || isKubeProxys(table, chain));
  if (unwanted.length === 0) return undefined;
  const { lines, held } = foreignJumps(table, installed, new Set(unwanted));
  const deleted = unwanted.filter((chain) => !held.has(chain));
  return textOf(transaction(table, { emptied: unwanted, jumps: lines, filled: [], deleted }));
}
