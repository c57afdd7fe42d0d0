import type { Table } from '../contracts/iptables.ts';
import { PROBE_CHAIN } from './chains.ts';
import type { Rule } from './rule.ts';
import { appendLine } from './safe-spec.ts';

/**
 * Restore text that shows whether the kernel accepts `rules`: it puts them into a chain that nothing leads to, so no
 * packet meets them. `iptables-restore --test` would not do, as it stops before the kernel is asked.
 * {@link probeCleanupText} must follow, whatever the outcome.
 */
export function probeText(table: Table, rules: readonly Rule[]): string {
  const lines = rules.filter((rule) => rule.table === table).map((rule) => appendLine(PROBE_CHAIN, rule.spec));
  return `${[`*${table}`, `:${PROBE_CHAIN} - [0:0]`, ...lines, 'COMMIT'].join('\n')}\n`;
}

/** Removes the probe chain; may be applied when there is none. */
export function probeCleanupText(table: Table): string {
  return `*${table}\n:${PROBE_CHAIN} - [0:0]\n-X ${PROBE_CHAIN}\nCOMMIT\n`;
}
