import type { Table } from '../model/iptables.ts';
import { sameList } from '../util/same-list.ts';
import { isOurs, JUMPS, type Jump, plainSpec } from './chains.ts';
import { type ChainRules, jumpTarget } from './dump.ts';
import { appendLine, fitsOnOneLine } from './safe-spec.ts';

/** A chain and what is to stand in it, in order. */
export interface WantedChain {
  readonly name: string;
  readonly specs: readonly string[];
}

export interface TablePlanInput {
  readonly table: Table;
  /** What stands in the table now; empty where it does not exist. */
  readonly installed: ChainRules;
  /** All chains of ours that are to be there. */
  readonly wanted: readonly WantedChain[];
}

export interface TablePlan {
  /** The text of one `iptables-restore --noflush`, line by line, as there may be many. */
  readonly lines: Iterable<string>;
  /** The chains that it fills. */
  readonly written: readonly string[];
}

/**
 * What turns the installed table into the wanted one in a single transaction; `undefined` when nothing differs. Chains
 * and rules of other programs are never touched: a `:CHAIN` line under `--noflush` empties that chain alone, in the
 * same transaction that fills it.
 *
 * A jump is moved at most once per plan: two agents that both want to be first take turns at the pace of their sync
 * periods instead of chasing each other.
 */
export function planTable({ table, installed, wanted }: TablePlanInput): TablePlan | undefined {
  const stale = staleChains(installed, wanted);
  const gone = unwantedChains(table, installed, wanted);
  const jumps = [...jumpGroups(table)].flatMap((group) => jumpCorrection(group, installed));
  if (stale.length === 0 && gone.length === 0 && jumps.length === 0) return undefined;
  const { lines: unhooked, held } = foreignJumps(table, installed, new Set(gone));
  const lines = transaction(table, {
    emptied: [...stale.map(({ name }) => name), ...gone],
    jumps: [...unhooked, ...jumps],
    filled: stale,
    deleted: gone.filter((name) => !held.has(name)),
  });
  // What cannot be deleted stays as an empty chain, and is no reason to write it again.
  const idle =
    stale.length === 0 && jumps.length === 0 && gone.every((name) => held.has(name) && isEmpty(installed, name));
  return idle ? undefined : { lines, written: stale.map(({ name }) => name) };
}

export interface TableChange {
  readonly table: Table;
  readonly written: readonly WantedChain[];
  /** Rules for the end of chains that are there. */
  readonly appended?: readonly WantedChain[];
  readonly deleted: readonly string[];
}

/** One transaction for what changed in a table that is otherwise as it was left; `undefined` when nothing did. */
export function planChange({ table, written, appended = [], deleted }: TableChange): Iterable<string> | undefined {
  if (written.length === 0 && appended.length === 0 && deleted.length === 0) return undefined;
  const emptied = [...written.map(({ name }) => name), ...deleted];
  return transaction(table, { emptied, jumps: [], filled: [...written, ...appended], deleted });
}

/**
 * Whether each jump of ours from the built-in chain `from` is among these rules of it, in whatever place: an agent that
 * also wants to be first is met at the pace of {@link planTable}, not of who asks this.
 */
export function hasJumps(table: Table, from: string, rules: readonly string[]): boolean {
  const plain = new Set(rules.map(plainSpec));
  return jumpsOf(table).every((jump) => jump.from !== from || plain.has(jump.spec));
}

/** The names of our chains that do not hold what they are to hold, or that nobody wants. */
export function differingChains(
  table: Table,
  installed: ChainRules,
  wanted: readonly WantedChain[],
): readonly string[] {
  return [...staleChains(installed, wanted).map(({ name }) => name), ...unwantedChains(table, installed, wanted)];
}

function staleChains(installed: ChainRules, wanted: readonly WantedChain[]): readonly WantedChain[] {
  return wanted.filter(({ name, specs }) => {
    const there = installed.get(name);
    return there === undefined || !sameList(there, specs);
  });
}

function unwantedChains(table: Table, installed: ChainRules, wanted: readonly WantedChain[]): readonly string[] {
  const names = new Set(wanted.map(({ name }) => name));
  return [...installed.keys()].filter((name) => isOurs(table, name) && !names.has(name));
}

/**
 * Deletes the jumps to `chains` that stand in other chains of other programs. `held` are those of `chains` to which a rule
 * leads that restore text cannot name: emptied, they do nothing, while trying to delete them would fail the rest.
 */
export function foreignJumps(
  table: Table,
  installed: ChainRules,
  chains: ReadonlySet<string>,
): { readonly lines: readonly string[]; readonly held: ReadonlySet<string> } {
  const lines: string[] = [];
  const held = new Set<string>();
  if (chains.size === 0) return { lines, held };
  for (const [chain, specs] of installed) {
    if (isOurs(table, chain) || chains.has(chain)) continue;
    for (const spec of specs) {
      const target = jumpTarget(spec);
      if (target === undefined || !chains.has(target)) continue;
      if (fitsOnOneLine(spec)) lines.push(`-D ${chain} ${spec}`);
      else held.add(target);
    }
  }
  return { lines, held };
}

interface Transaction {
  readonly emptied: readonly string[];
  readonly jumps: readonly string[];
  readonly filled: readonly WantedChain[];
  /** Emptied as well, and nothing leads to them any more. */
  readonly deleted: readonly string[];
}

/** Chains are made before rules lead to them, and deleted after none does. */
export function* transaction(table: Table, { emptied, jumps, filled, deleted }: Transaction): Generator<string> {
  yield `*${table}`;
  for (const name of emptied) yield `:${name} - [0:0]`;
  yield* jumps;
  for (const { name, specs } of filled) {
    for (const spec of specs) yield appendLine(name, spec);
  }
  for (const name of deleted) yield `-X ${name}`;
  yield 'COMMIT';
}

/** Lines as the tools read them. */
export function textOf(lines: Iterable<string>): string {
  return `${[...lines].join('\n')}\n`;
}

function jumpsOf(table: Table): readonly Jump[] {
  return JUMPS.filter((jump) => jump.table === table);
}

function isEmpty(installed: ChainRules, chain: string): boolean {
  return installed.get(chain)?.length === 0;
}

/** Jumps from the same chain that belong to the same place, in order. */
function jumpGroups(table: Table): Iterable<readonly Jump[]> {
  return Map.groupBy(jumpsOf(table), ({ from, place }) => `${from} ${place}`).values();
}

/**
 * The lines that leave each of `group` in its chain once, in its place. Copies are recognised by where they lead and
 * deleted as they are spelled in the dump. Were they recognised by our own spelling, a release of iptables that prints it
 * differently would make every sync add one more (kubernetes issue 14870: 164,000 of them).
 */
function jumpCorrection(group: readonly Jump[], installed: ChainRules): readonly string[] {
  const [first] = group;
  if (first === undefined) return [];
  const { from, place } = first;
  const siblings = installed.get(from) ?? [];
  const targets = new Set(group.map(({ to }) => to));
  const copies = siblings.filter((spec) => targets.has(jumpTarget(spec) ?? '') && fitsOnOneLine(spec));
  const there = place === 'first' ? siblings.slice(0, group.length) : siblings.slice(-group.length);
  const specs = group.map(({ spec }) => spec);
  if (sameList(there.map(plainSpec), specs) && copies.length === specs.length) return [];
  const inserted = specs.map((spec, index) =>
    place === 'first' ? `-I ${from} ${index + 1} ${spec}` : `-A ${from} ${spec}`,
  );
  return [...copies.map((spec) => `-D ${from} ${spec}`), ...inserted];
}
