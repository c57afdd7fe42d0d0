import type { Table } from '../contracts/iptables.ts';
import { CHAINS, JUMPS, type Jump } from './chains.ts';
import { type ChainRules, jumpTarget, parseDump } from './dump.ts';
import type { Rule } from './rule.ts';
import { appendLine, fitsOnOneLine } from './safe-spec.ts';

export interface PlanInput {
  readonly table: Table;
  /** What `iptables-save -t table` prints now; empty where the table does not exist. */
  readonly dump: string;
  /** Everything that is to be installed; rules of other tables are passed over. */
  readonly rules: readonly Rule[];
}

/**
 * What turns the installed table into the wanted one, as the text of a single `iptables-restore --noflush`; `undefined`
 * when nothing differs. Chains and rules of other programs are never touched: a `:CHAIN` line under `--noflush` empties
 * that chain alone, in the same transaction that fills it.
 *
 * Called once per sync, and so a jump is moved at most once per sync: two agents that both want to be first take turns
 * at the pace of their sync periods instead of chasing each other.
 */
export function planTable({ table, dump, rules }: PlanInput): string | undefined {
  const installed = parseDump(dump).get(table) ?? new Map();
  const wanted = specsByChain(table, rules);
  const stale = [...wanted].filter(([chain, specs]) => !sameList(installed.get(chain), specs));
  const jumps = JUMPS.filter((jump) => jump.table === table).flatMap((jump) => jumpCorrection(jump, installed));
  if (stale.length === 0 && jumps.length === 0) return undefined;
  const lines = [
    `*${table}`,
    ...stale.map(([chain]) => `:${chain} - [0:0]`),
    ...jumps,
    ...stale.flatMap(([chain, specs]) => specs.map((spec) => appendLine(chain, spec))),
    'COMMIT',
  ];
  return `${lines.join('\n')}\n`;
}

function specsByChain(table: Table, rules: readonly Rule[]): ReadonlyMap<string, readonly string[]> {
  const byChain = new Map<string, string[]>(CHAINS[table].map((chain) => [chain, []]));
  for (const rule of rules) {
    if (rule.table !== table) continue;
    const specs = byChain.get(rule.chain);
    if (specs === undefined) throw new Error(`There is no chain ${rule.chain} of ours in table ${table}`);
    specs.push(rule.spec);
  }
  return byChain;
}

function sameList(installed: readonly string[] | undefined, wanted: readonly string[]): boolean {
  return installed?.length === wanted.length && wanted.every((spec, index) => spec === installed[index]);
}

/**
 * The lines that leave `jump` in its chain once, in its place. Copies are recognised by where they lead and deleted as
 * they are spelled in the dump. Were they recognised by our own spelling, a release of iptables that prints it
 * differently would make every sync add one more (kubernetes issue 14870: 164,000 of them).
 */
function jumpCorrection(jump: Jump, installed: ChainRules): readonly string[] {
  const siblings = installed.get(jump.from) ?? [];
  const copies = siblings.filter((spec) => jumpTarget(spec) === jump.to && fitsOnOneLine(spec));
  const inPlace = siblings.at(jump.place === 'first' ? 0 : -1) === jump.spec;
  if (inPlace && copies.length === 1) return [];
  const insert = jump.place === 'first' ? `-I ${jump.from} 1 ${jump.spec}` : `-A ${jump.from} ${jump.spec}`;
  return [...copies.map((spec) => `-D ${jump.from} ${spec}`), insert];
}
