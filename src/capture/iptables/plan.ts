import type { IpFamily } from '../../model/address.ts';
import { sameList } from '../../util/same-list.ts';
import { isKubeProxys, isOurs, type Jump, jumpsOf, PROBE_CHAIN, plainSpec } from './chains.ts';
import { type ChainRules, jumpTarget } from './dump.ts';
import type { Table } from './iptables.ts';
import { appendLine, fitsOnOneLine, type Rule } from './rule.ts';

/** The complete contents of a chain, in order. */
export interface WantedChain {
  readonly name: string;
  readonly specs: readonly string[];
}

/** In which of our chains a table is not as wanted. */
export interface Difference {
  readonly stale: readonly WantedChain[];
  readonly unwanted: readonly string[];
}

/** `wanted`: all of our chains. Visits each in a step of its own, as there may be many. */
export function* difference(
  table: Table,
  installed: ChainRules,
  wanted: Iterable<WantedChain>,
): Generator<undefined, Difference> {
  const stale: WantedChain[] = [];
  const names = new Set<string>();
  for (const chain of wanted) {
    names.add(chain.name);
    const there = installed.get(chain.name);
    if (there === undefined || !sameList(there, chain.specs)) stale.push(chain);
    yield;
  }
  return { stale, unwanted: [...installed.keys()].filter((name) => isOurs(table, name) && !names.has(name)) };
}

/**
 * Turns the installed table into the wanted one; `undefined` when nothing differs. Never touches chains and rules of
 * other programs: a `:CHAIN` line under `--noflush` empties that chain alone.
 *
 * Moves a jump at most once, so two agents that both want to be first take turns at the pace of their sync periods.
 */
export function planTable(
  table: Table,
  installed: ChainRules,
  { stale, unwanted }: Difference,
  wantedJumps = jumpsOf(table, { dropsUnassigned: false }),
): Iterable<string> | undefined {
  const jumps = [...jumpGroups(wantedJumps)].flatMap((group) => jumpCorrection(group, installed));
  const { lines: foreign, held } = foreignJumps(table, installed, new Set(unwanted));
  // An empty chain that cannot be deleted is no reason to write the table again.
  const isDone = unwanted.every((name) => held.has(name) && installed.get(name)?.length === 0);
  if (stale.length === 0 && jumps.length === 0 && isDone) return undefined;
  return transaction(table, {
    emptied: [...stale.map(({ name }) => name), ...unwanted],
    jumps: [...foreign, ...jumps],
    filled: stale,
    deleted: unwanted.filter((name) => !held.has(name)),
  });
}

export interface TableChange {
  readonly written: readonly WantedChain[];
  /** Rules for the end of existing chains. */
  readonly appended?: readonly WantedChain[];
  readonly deleted: readonly string[];
}

/** One transaction for the changed chains of a table that is otherwise up to date; `undefined` without changes. */
export function planChange(
  table: Table,
  { written, appended = [], deleted }: TableChange,
): Iterable<string> | undefined {
  if (written.length === 0 && appended.length === 0 && deleted.length === 0) return undefined;
  const emptied = [...written.map(({ name }) => name), ...deleted];
  return transaction(table, { emptied, jumps: [], filled: [...written, ...appended], deleted });
}

/**
 * The text of one `iptables-restore --noflush` that removes every trace of this program from a table, with `kubeProxys`
 * of kube-proxy in its modes iptables and ipvs too; `undefined` when there is none.
 */
export function planCleanup(
  table: Table,
  installed: ChainRules,
  { kubeProxys }: { readonly kubeProxys: boolean },
): string | undefined {
  const unwanted = [...installed.keys()].filter(
    (chain) => isOurs(table, chain) || (kubeProxys && isKubeProxys(table, chain)),
  );
  if (unwanted.length === 0) return undefined;
  const { lines, held } = foreignJumps(table, installed, new Set(unwanted));
  const deleted = unwanted.filter((chain) => !held.has(chain));
  return textOf(transaction(table, { emptied: unwanted, jumps: lines, filled: [], deleted }));
}

/**
 * Restore text that shows whether the kernel accepts `rules`, in a chain that no packet enters: `iptables-restore
 * --test` does not ask the kernel. {@link probeCleanupText} must follow, whatever the outcome.
 */
export function probeText(table: Table, rules: readonly Rule[]): string {
  const specs = rules.filter((rule) => rule.table === table).map((rule) => rule.spec);
  const filled = [{ name: PROBE_CHAIN, specs }];
  return textOf(transaction(table, { emptied: [PROBE_CHAIN], jumps: [], filled, deleted: [] }));
}

/** Removes the probe chain. May be applied when there is none. */
export function probeCleanupText(table: Table): string {
  return textOf(transaction(table, { emptied: [PROBE_CHAIN], jumps: [], filled: [], deleted: [PROBE_CHAIN] }));
}

/**
 * Restore text that succeeds where the kernel has NAT of the family, and changes nothing. Listing a chain would not do:
 * the nft tools list built-in chains that the kernel does not have.
 */
export function natProbeText(family: IpFamily): string {
  const target = family === 'IPv4' ? '127.0.0.1:1' : '[::1]:1';
  return textOf([
    '*nat',
    `:${PROBE_CHAIN} - [0:0]`,
    appendLine(PROBE_CHAIN, `-p tcp -m tcp --dport 1 -j DNAT --to-destination ${target}`),
    `-I PREROUTING 1 -j ${PROBE_CHAIN}`,
    `-D PREROUTING -j ${PROBE_CHAIN}`,
    `-F ${PROBE_CHAIN}`,
    `-X ${PROBE_CHAIN}`,
    'COMMIT',
  ]);
}

/** Whether the rules of `from` include all these jumps, in any place. */
export function hasJumps(jumps: readonly Jump[], from: string, rules: readonly string[]): boolean {
  const plain = new Set(rules.map(plainSpec));
  return jumps.every((jump) => jump.from !== from || plain.has(jump.spec));
}

export function textOf(lines: Iterable<string>): string {
  return `${[...lines].join('\n')}\n`;
}

/**
 * The lines that delete jumps to `chains` from chains of other programs. `held`: chains whose jumps restore text cannot
 * repeat. Trying to delete one would fail the whole transaction.
 */
function foreignJumps(table: Table, installed: ChainRules, chains: ReadonlySet<string>) {
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
  /** Must be among `emptied`; no rule may jump to them any more. */
  readonly deleted: readonly string[];
}

/** Creates chains before rules jump to them, and deletes chains after the last jump to them. */
function* transaction(table: Table, { emptied, jumps, filled, deleted }: Transaction): Generator<string> {
  yield `*${table}`;
  for (const name of emptied) yield `:${name} - [0:0]`;
  yield* jumps;
  for (const { name, specs } of filled) {
    for (const spec of specs) yield appendLine(name, spec);
  }
  for (const name of deleted) yield `-X ${name}`;
  yield 'COMMIT';
}

/** Jumps from the same chain at the same place, in order. */
function jumpGroups(jumps: readonly Jump[]): Iterable<readonly Jump[]> {
  return Map.groupBy(jumps, ({ from, place }) => `${from} ${place}`).values();
}

/**
 * The lines that leave each of `group` in its chain once, in its place. Recognises copies by their target: a release of
 * iptables that prints them differently would otherwise make every sync add one (kubernetes issue 14870: 164,000).
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
