import type { NodeFacts } from '../../model/capture.ts';
import { byRank } from '../claim-book.ts';
import type { Claim } from '../claims.ts';
import { TREE_NAMES, TREES, type TreeName, tableOf } from './chains.ts';
import { groupsOf, type RuleGroup, rulePartsOf, rulesOf } from './claim-rules.ts';
import type { Table } from './iptables.ts';
import { type Rule, unsafeReason } from './rule.ts';
import { emptyTree, type RuleTree, withItem, withoutItem } from './rule-tree.ts';

/** A rule that was left out. */
export interface UnsafeRule {
  readonly rule: Rule;
  readonly reason: string;
}

/**
 * The most rules in one chain. A new connection pays about 12 ns for each, and a change rewrites at most this many.
 */
const MAX_LEAF = 128;

/** Local ports lie closer together, and connections to Services skip their chains (docs/adr/0010). */
const MAX_LOCAL_PORTS_LEAF = 16;

/** Immutable. */
export type RuleTrees = ReadonlyMap<TreeName, RuleTree<RuleGroup>>;

/** The rules of all claims that are granted. */
export class RuleBook {
  readonly #parts: ReturnType<typeof rulePartsOf>;
  readonly #trees = new Map<TreeName, RuleTree<RuleGroup>>(TREE_NAMES.map((name) => [name, emptyTree()]));
  /** By `Claim.what`. */
  readonly #unsafe = new Map<string, readonly UnsafeRule[]>();

  constructor(node: NodeFacts) {
    this.#parts = rulePartsOf(node);
  }

  replace(before: Claim | undefined, after: Claim | undefined): void {
    if (before !== undefined) {
      const groups = groupsOf(before, this.#parts);
      const safe = this.#unsafe.delete(before.what) ? safeGroups(groups) : groups;
      for (const group of safe) this.#update(group, withoutItem);
    }
    if (after !== undefined) {
      const groups = groupsOf(after, this.#parts);
      const unsafe = groups.flatMap(unsafeRules);
      if (unsafe.length > 0) this.#unsafe.set(after.what, unsafe);
      for (const group of unsafe.length > 0 ? safeGroups(groups) : groups) this.#update(group, withItem);
    }
  }

  /** A snapshot. */
  trees(table: Table): RuleTrees {
    return new Map([...this.#trees].filter(([name]) => tableOf(name) === table));
  }

  unsafe(): readonly UnsafeRule[] {
    return [...this.#unsafe.values()].flat();
  }

  #update(group: RuleGroup, change: typeof withItem<RuleGroup>): void {
    const { tree } = group;
    const layout = { order: byClaim, maxLeaf: tree === 'LP' ? MAX_LOCAL_PORTS_LEAF : MAX_LEAF };
    this.#trees.set(tree, change(this.#trees.get(tree) ?? emptyTree(), group, layout));
  }
}

function byClaim(a: RuleGroup, b: RuleGroup): number {
  return byRank(a.claim, b.claim);
}

function safeGroups(groups: readonly RuleGroup[]): readonly RuleGroup[] {
  return groups
    .map((group) => ({ ...group, specs: group.specs.filter((spec) => unsafeReason(spec) === undefined) }))
    .filter((group) => group.specs.length > 0);
}

function unsafeRules(group: RuleGroup): readonly UnsafeRule[] {
  return rulesOf(group, TREES[group.tree][0]).flatMap((rule) => {
    const reason = unsafeReason(rule.spec);
    return reason === undefined ? [] : [{ rule, reason }];
  });
}

/** The trees that a root chain leads to. */
export function treesBelow(root: string, trees: RuleTrees): readonly [TreeName, RuleTree<RuleGroup>][] {
  return [...trees].filter(([name]) => (TREES[name] as readonly string[]).includes(root));
}
