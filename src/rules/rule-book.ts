import type { Table } from '../model/iptables.ts';
import type { ServicePortName } from '../model/service.ts';
import { LOCAL_PORTS, ROOT_CHAINS } from './chains.ts';
import { CLAIM_KINDS, type Claim, type ClaimPart, claimsOf, type Portal } from './claims.ts';
import type { Rule } from './rule.ts';
import { emptyTree, type Layout, type RuleTree, withItem, withoutItem } from './rule-tree.ts';
import { unsafeReason } from './safe-spec.ts';
import { type NodeFacts, type Steering, steering } from './steering.ts';

/** `owner` does without the rules for `what`, as `holder` has it. */
export interface PortalConflict {
  readonly owner: ServicePortName;
  readonly holder: ServicePortName;
  readonly what: string;
}

/** A rule that was left out; `reason` is the rest of the sentence "… because …". */
export interface UnsafeRule {
  readonly rule: Rule;
  readonly reason: string;
}

/**
 * How many rules of a chain a packet may have to be compared with in one go. A connection pays some 12 ns for each,
 * once, which for this many is the noise of a connect; and a change rewrites at most as many.
 */
const MAX_LEAF = 128;

/** Of local ports, which lie closer together, and which no connection to a Service comes by (figures in docs/adr/0010). */
const MAX_LOCAL_PORTS_LEAF = 16;

/** For each root chain, all that it leads to. A value: a later change makes another one. */
export type RuleTrees = ReadonlyMap<string, RuleTree<ClaimPart>>;

/**
 * All portals of one family and the rules that they get, one portal at a time: work is in proportion to what changes.
 * What it says depends on the portals that there are, not on the order in which they came: claims are granted by kind,
 * then by name, and when a holder goes the next claimant gets what it had. API servers prevent most conflicts;
 * manifests do not.
 */
export class RuleBook {
  readonly #steer: Steering;
  readonly #claims = new Map<ServicePortName, readonly Claim[]>();
  /** Who wants it, the strongest first, who has it; never empty. */
  readonly #claimants = new Map<string, readonly Claim[]>();
  /** What more than one claim is for. */
  readonly #contested = new Set<string>();
  readonly #unsafe = new Map<string, readonly UnsafeRule[]>();
  readonly #trees = new Map<string, RuleTree<ClaimPart>>();
  #snapshot: RuleTrees | undefined;

  constructor(node: NodeFacts, portals: Iterable<Portal>) {
    this.#steer = steering(node);
    for (const root of Object.values(ROOT_CHAINS).flat()) this.#trees.set(root, emptyTree());
    for (const portal of portals) this.set(portal);
  }

  set(portal: Portal): void {
    const { name } = portal.servicePort;
    this.remove(name);
    const claims = claimsOf(portal, this.#steer);
    this.#claims.set(name, claims);
    for (const claim of claims) this.#change(claim.what, (claimants) => [...claimants, claim].sort(byStanding));
  }

  remove(name: ServicePortName): void {
    const claims = this.#claims.get(name) ?? [];
    this.#claims.delete(name);
    for (const claim of claims) {
      this.#change(claim.what, (claimants) => claimants.filter((other) => other !== claim));
    }
  }

  /** The rules as they are to be now. The same object for as long as nothing changed. */
  trees(): RuleTrees {
    this.#snapshot ??= new Map(this.#trees);
    return this.#snapshot;
  }

  conflicts(): readonly PortalConflict[] {
    return [...this.#contested].flatMap((what) => {
      const [holder, ...others] = (this.#claimants.get(what) ?? []).map((claim) => claim.standing.owner);
      if (holder === undefined) return [];
      return others.filter((owner) => owner !== holder).map((owner) => ({ owner, holder, what }));
    });
  }

  unsafe(): readonly UnsafeRule[] {
    return [...this.#unsafe.values()].flat();
  }

  #change(what: string, change: (claimants: readonly Claim[]) => readonly Claim[]): void {
    const before = this.#claimants.get(what) ?? [];
    const after = change(before);
    if (after.length === 0) this.#claimants.delete(what);
    else this.#claimants.set(what, after);
    if (after.length > 1) this.#contested.add(what);
    else this.#contested.delete(what);
    this.#handOver(before[0], after[0]);
  }

  #handOver(before: Claim | undefined, after: Claim | undefined): void {
    if (before === after) return;
    this.#snapshot = undefined;
    if (before !== undefined) {
      this.#unsafe.delete(before.what);
      for (const part of safeParts(before)) {
        this.#trees.set(part.chain, withoutItem(treeIn(this.#trees, part.chain), part, layoutOf(part)));
      }
    }
    if (after !== undefined) {
      const unsafe = unsafeRules(after);
      if (unsafe.length > 0) this.#unsafe.set(after.what, unsafe);
      for (const part of safeParts(after)) {
        this.#trees.set(part.chain, withItem(treeIn(this.#trees, part.chain), part, layoutOf(part)));
      }
    }
  }
}

function safeParts({ parts }: Claim): readonly ClaimPart[] {
  if (parts.every((part) => part.specs.every(isSafe))) return parts;
  return parts.map((part) => ({ ...part, specs: part.specs.filter(isSafe) })).filter((part) => part.specs.length > 0);
}

function isSafe(spec: string): boolean {
  return unsafeReason(spec) === undefined;
}

function unsafeRules({ parts }: Claim): readonly UnsafeRule[] {
  return parts.flatMap(rulesOf).flatMap((rule) => {
    const reason = unsafeReason(rule.spec);
    return reason === undefined ? [] : [{ rule, reason }];
  });
}

export function rulesOf({ table, chain, specs, standing: { owner } }: ClaimPart): readonly Rule[] {
  return specs.map((spec) => ({ table, chain, spec, owner }));
}

/** The trees of one table. */
export function treesOf(trees: RuleTrees, table: Table): RuleTrees {
  return new Map(ROOT_CHAINS[table].map((root) => [root, treeIn(trees, root)]));
}

function treeIn(trees: RuleTrees, chain: string): RuleTree<ClaimPart> {
  const tree = trees.get(chain);
  if (tree === undefined) throw new Error(`There is no root chain ${chain} of ours`);
  return tree;
}

function layoutOf({ chain }: ClaimPart): Layout<ClaimPart> {
  return { order: byPlace, maxLeaf: chain === LOCAL_PORTS ? MAX_LOCAL_PORTS_LEAF : MAX_LEAF };
}

/** A claim may have parts for two destinations in one chain. */
function byPlace(a: ClaimPart, b: ClaimPart): number {
  return byStanding(a, b) || compare(a.key, b.key);
}

function byStanding({ standing: a }: Pick<Claim, 'standing'>, { standing: b }: Pick<Claim, 'standing'>): number {
  const byKind = a.kind === b.kind ? 0 : CLAIM_KINDS.indexOf(a.kind) - CLAIM_KINDS.indexOf(b.kind);
  return byKind || compare(a.owner, b.owner) || a.index - b.index;
}

/** By code unit: the same on every node, whatever its locale. */
function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
