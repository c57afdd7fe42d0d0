import type { Table } from '../model/iptables.ts';
import type { ServicePortName } from '../model/service.ts';
import { LOCAL_PORTS, ROOT_CHAINS } from './chains.ts';
import type { Portal } from './portal.ts';
import { type Rule, unsafeReason } from './rule.ts';
import { emptyTree, type RuleTree, withItem, withoutItem } from './rule-tree.ts';
import {
  type Claim,
  claimsOf,
  type NodeFacts,
  RULE_KINDS,
  type RuleGroup,
  type RuleParts,
  rulePartsOf,
} from './service-rules.ts';

/** `owner` gets no rules for `what`, because `holder` has it. */
export interface PortalConflict {
  readonly owner: ServicePortName;
  readonly holder: ServicePortName;
  readonly what: string;
}

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

/** The rules of each root chain. Immutable. */
export type RuleTrees = ReadonlyMap<string, RuleTree<RuleGroup>>;

/** The Service port that has `what` (a `Claim.what`); `undefined` for none. */
export type HolderOf = (what: string) => ServicePortName | undefined;

/**
 * The rules of all portals of one family. Work is in proportion to the change. The result does not depend on the order
 * of updates: claims are granted by kind, then to who has it in the installed rules, then by name. When a holder goes,
 * the next claimant gets its rules.
 */
export class RuleSet {
  readonly #parts: RuleParts;
  readonly #claims = new Map<ServicePortName, readonly Claim[]>();
  /** By `Claim.what`, the strongest first; never empty. */
  readonly #claimants = new Map<string, readonly Claim[]>();
  /** Every `Claim.what` that more than one claim names. */
  readonly #contested = new Set<string>();
  /** The holder in the installed rules of each `what` that has another holder now. */
  readonly #heldBefore = new Map<string, ServicePortName | undefined>();
  #installed: HolderOf;
  readonly #unsafe = new Map<string, readonly UnsafeRule[]>();
  readonly #trees = new Map<string, RuleTree<RuleGroup>>();
  #snapshot: RuleTrees | undefined;

  /** `installed`: the holders in the rules that the kernel has now. */
  constructor(node: NodeFacts, portals: Iterable<Portal>, installed: HolderOf = () => undefined) {
    this.#parts = rulePartsOf(node);
    this.#installed = installed;
    for (const root of Object.values(ROOT_CHAINS).flat()) this.#trees.set(root, emptyTree());
    for (const portal of portals) this.set(portal);
  }

  set(portal: Portal): void {
    this.#replaceClaims(portal.servicePort.name, claimsOf(portal, this.#parts));
  }

  remove(name: ServicePortName): void {
    this.#replaceClaims(name, []);
  }

  /** The same object while nothing changes. */
  trees(): RuleTrees {
    this.#snapshot ??= new Map(this.#trees);
    return this.#snapshot;
  }

  /** All rules are installed now: each holder keeps what it has for as long as it claims it. */
  settle(): void {
    this.#heldBefore.clear();
    this.#installed = () => undefined;
  }

  /** The holder in the installed rules. */
  holderOf(what: string): ServicePortName | undefined {
    if (this.#heldBefore.has(what)) return this.#heldBefore.get(what);
    return this.#claimants.get(what)?.[0]?.rank.owner ?? this.#installed(what);
  }

  conflicts(): readonly PortalConflict[] {
    return [...this.#contested].flatMap((what) => this.#conflictsAt(what));
  }

  conflictsOf(name: ServicePortName): readonly PortalConflict[] {
    return (this.#claims.get(name) ?? [])
      .filter(({ what }) => this.#contested.has(what))
      .flatMap(({ what }) => this.#conflictsAt(what).filter(({ owner }) => owner === name));
  }

  unsafe(): readonly UnsafeRule[] {
    return [...this.#unsafe.values()].flat();
  }

  #conflictsAt(what: string): readonly PortalConflict[] {
    const [holder, ...others] = (this.#claimants.get(what) ?? []).map((claim) => claim.rank.owner);
    if (holder === undefined) return [];
    return others.filter((owner) => owner !== holder).map((owner) => ({ owner, holder, what }));
  }

  #replaceClaims(name: ServicePortName, after: readonly Claim[]): void {
    const before = new Set(this.#claims.get(name));
    const others = (claimants: readonly Claim[]) => claimants.filter((claim) => !before.has(claim));
    const wanted = new Set(after.map(({ what }) => what));
    for (const { what } of before) if (!wanted.has(what)) this.#change(what, others);
    for (const claim of after) {
      // In one step, so that no other claimant has it in between.
      this.#change(claim.what, (claimants) => {
        const left = before.size === 0 ? claimants : others(claimants);
        return left.length === 0 ? [claim] : [...left, claim];
      });
    }
    if (after.length === 0) this.#claims.delete(name);
    // An array that grows has room to spare, and nearly always one claimant is all.
    else this.#claims.set(name, [...after]);
  }

  #change(what: string, change: (claimants: readonly Claim[]) => readonly Claim[]): void {
    const before = this.#claimants.get(what) ?? [];
    const holder = this.holderOf(what);
    const isOthers = ({ rank }: Claim) => Number(rank.owner !== holder);
    const wanted = change(before);
    const byHolder = (a: Claim, b: Claim) => byKind(a, b) || isOthers(a) - isOthers(b) || byRank(a, b);
    const after = wanted.length > 1 ? wanted.toSorted(byHolder) : wanted;
    if (after.length === 0) this.#claimants.delete(what);
    else this.#claimants.set(what, after);
    if (after.length > 1) this.#contested.add(what);
    else this.#contested.delete(what);
    if (before[0]?.rank.owner !== after[0]?.rank.owner) this.#heldBefore.set(what, holder);
    this.#replaceHolder(before[0], after[0]);
  }

  #replaceHolder(before: Claim | undefined, after: Claim | undefined): void {
    if (before === after) return;
    this.#snapshot = undefined;
    if (before !== undefined) {
      this.#unsafe.delete(before.what);
      for (const group of safeGroups(before)) this.#update(group, withoutItem);
    }
    if (after !== undefined) {
      const unsafe = unsafeRules(after);
      if (unsafe.length > 0) this.#unsafe.set(after.what, unsafe);
      for (const group of safeGroups(after)) this.#update(group, withItem);
    }
  }

  #update(group: RuleGroup, change: typeof withItem<RuleGroup>): void {
    const { chain } = group;
    const layout = { order: byRank, maxLeaf: chain === LOCAL_PORTS ? MAX_LOCAL_PORTS_LEAF : MAX_LEAF };
    this.#trees.set(chain, change(this.#trees.get(chain) ?? emptyTree(), group, layout));
  }
}

function safeGroups({ groups }: Claim): readonly RuleGroup[] {
  if (groups.every((group) => group.specs.every(isSafe))) return groups;
  return groups
    .map((group) => ({ ...group, specs: group.specs.filter(isSafe) }))
    .filter((group) => group.specs.length > 0);
}

const isSafe = (spec: string) => unsafeReason(spec) === undefined;

function unsafeRules({ groups }: Claim): readonly UnsafeRule[] {
  return groups.flatMap(rulesOf).flatMap((rule) => {
    const reason = unsafeReason(rule.spec);
    return reason === undefined ? [] : [{ rule, reason }];
  });
}

export function rulesOf({ table, chain, specs, rank: { owner } }: RuleGroup): readonly Rule[] {
  return specs.map((spec) => ({ table, chain, spec, owner }));
}

export function treesOf(trees: RuleTrees, table: Table): RuleTrees {
  return new Map([...trees].filter(([root]) => ROOT_CHAINS[table].includes(root)));
}

type Ranked = Pick<Claim, 'rank'>;

function byKind({ rank: a }: Ranked, { rank: b }: Ranked): number {
  return a.kind === b.kind ? 0 : RULE_KINDS.indexOf(a.kind) - RULE_KINDS.indexOf(b.kind);
}

function byRank(one: Ranked, other: Ranked): number {
  const [{ rank: a }, { rank: b }] = [one, other];
  const kinds = byKind(one, other);
  if (kinds !== 0 || a.owner === b.owner) return kinds || a.index - b.index;
  // By code unit: the same in every locale.
  return a.owner < b.owner ? -1 : 1;
}
