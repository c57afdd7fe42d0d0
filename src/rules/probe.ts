import type { IpFamily } from '../model/address.ts';
import type { Table } from '../model/iptables.ts';
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

/**
 * Restore text that succeeds where the kernel has NAT of the family, and changes nothing: all of it is one transaction.
 * Asking for a chain would not do: the nft tools list built-in chains that the kernel does not have.
 */
export function natProbeText(family: IpFamily): string {
  const target = family === 'IPv4' ? '127.0.0.1:1' : '[::1]:1';
  const lines = [
    '*nat',
    `:${PROBE_CHAIN} - [0:0]`,
    appendLine(PROBE_CHAIN, `-p tcp -m tcp --dport 1 -j DNAT --to-destination ${target}`),
    `-I PREROUTING 1 -j ${PROBE_CHAIN}`,
    `-D PREROUTING -j ${PROBE_CHAIN}`,
    `-F ${PROBE_CHAIN}`,
    `-X ${PROBE_CHAIN}`,
    'COMMIT',
  ];
  return `${lines.join('\n')}\n`;
}
