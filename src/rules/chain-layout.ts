import type { IpFamily } from '../model/address.ts';
import { bucketChain, firstInRoot, LAST_IN_ROOT, ROOT_CHAINS } from './chains.ts';
import type { ClaimPart } from './claims.ts';
import { type DestinationKey, prefixMatch } from './destination-key.ts';
import type { Rule } from './rule.ts';
import { type RuleTrees, rulesOf } from './rule-book.ts';
import type { Branch, RuleTree } from './rule-tree.ts';

/** One of our chains and what stands in it: rules that decide, then jumps to other chains of ours. */
export interface Chain {
  readonly name: string;
  readonly rules: readonly Rule[];
  readonly jumps: readonly string[];
}

export interface LayoutFacts {
  readonly family: IpFamily;
  /** That of `DataPlaneOptions`. */
  readonly connectionMark?: number | undefined;
}

export interface LayoutChange {
  /** New chains, and those that hold something else than before. */
  readonly written: readonly Chain[];
  readonly deleted: readonly string[];
}

/** A place in a root's tree; the root itself is below the empty prefix. */
interface Place {
  readonly root: string;
  readonly prefix: DestinationKey;
  readonly tree: RuleTree<ClaimPart>;
}

/** Every chain of these trees, one at a time, as there may be many. */
export function* chainsOf(trees: RuleTrees, facts: LayoutFacts): Generator<Chain> {
  for (const root of roots(trees)) {
    for (const place of withAllBelow(root)) yield chainAt(place, facts);
  }
}

/** The chains that the built-in ones lead to, without the buckets. */
export function rootChains(trees: RuleTrees, facts: LayoutFacts): readonly Chain[] {
  return roots(trees).map((root) => chainAt(root, facts));
}

/**
 * What turns the chains of one set of trees into those of another. Work is in proportion to what differs: where both
 * have the same tree under the same prefix, nothing below it is looked at.
 */
export function layoutChange(before: RuleTrees, after: RuleTrees, facts: LayoutFacts): LayoutChange {
  const written: Chain[] = [];
  const deleted: string[] = [];
  for (const pair of differingPairs(before, after)) {
    if (pair.after === undefined) deleted.push(...(pair.before === undefined ? [] : [nameOf(pair.before)]));
    else if (!holdTheSame(pair.before?.tree, pair.after.tree)) written.push(chainAt(pair.after, facts));
  }
  return { written, deleted };
}

function* differingPairs(before: RuleTrees, after: RuleTrees): Generator<PlacePair> {
  const pairs = new PlacePairs();
  pairs.add('before', roots(before));
  pairs.add('after', roots(after));
  for (const pair of pairs.shortestFirst()) {
    if (pair.before?.tree === pair.after?.tree) continue;
    if (pair.before !== undefined) pairs.add('before', below(pair.before));
    if (pair.after !== undefined) pairs.add('after', below(pair.after));
    yield pair;
  }
}

interface PlacePair {
  before?: Place;
  after?: Place;
}

/**
 * Brings together what is at the same place before and after. Places come up in the order of their length: all that
 * lies above one, and could lead to it on either side, has come up by then.
 */
class PlacePairs {
  readonly #byLength: Map<string, PlacePair>[] = [];

  add(side: keyof PlacePair, places: readonly Place[]): void {
    for (const place of places) {
      const pairs = this.#byLength[place.prefix.length] ?? new Map<string, PlacePair>();
      this.#byLength[place.prefix.length] = pairs;
      const key = `${place.root} ${place.prefix}`;
      const pair = pairs.get(key) ?? {};
      pair[side] = place;
      pairs.set(key, pair);
    }
  }

  *shortestFirst(): Generator<PlacePair> {
    for (let length = 0; length < this.#byLength.length; length++) yield* this.#byLength[length]?.values() ?? [];
  }
}

function roots(trees: RuleTrees): Place[] {
  return [...trees].map(([root, tree]) => ({ root, prefix: '', tree }));
}

function below({ root, tree }: Place): Place[] {
  if (tree.kind === 'leaf') return [];
  return tree.children.map((child) => ({ root, prefix: tree.prefix + child.step, tree: child.tree }));
}

function* withAllBelow(place: Place): Generator<Place> {
  yield place;
  for (const child of below(place)) yield* withAllBelow(child);
}

function chainAt(place: Place, facts: LayoutFacts): Chain {
  const { root, prefix, tree } = place;
  const first = prefix === '' ? firstInRoot(root, facts.connectionMark) : [];
  const rules = [
    ...first.map((spec): Rule => ({ table: ROOT_CHAINS.nat.includes(root) ? 'nat' : 'filter', chain: root, spec })),
    ...(tree.kind === 'leaf' ? tree.items.flatMap(rulesOf) : []),
  ];
  const jumps = below(place).map((child) => `${prefixMatch(child.prefix, facts.family)} -j ${nameOf(child)}`);
  const last = prefix === '' ? LAST_IN_ROOT.get(root) : undefined;
  return { name: nameOf(place), rules, jumps: last === undefined ? jumps : [...jumps, last] };
}

function nameOf({ root, prefix }: Place): string {
  return prefix === '' ? root : bucketChain(root, prefix);
}

function holdTheSame(a: RuleTree<ClaimPart> | undefined, b: RuleTree<ClaimPart>): boolean {
  if (a === undefined) return false;
  if (a.kind === 'branch') return b.kind === 'branch' && leadToTheSame(a, b);
  return b.kind === 'leaf' && sameSpecs(a.items, b.items);
}

function leadToTheSame(a: Branch<ClaimPart>, b: Branch<ClaimPart>): boolean {
  return (
    a.prefix === b.prefix &&
    a.children.length === b.children.length &&
    a.children.every(({ step }, index) => step === b.children[index]?.step)
  );
}

function sameSpecs(a: readonly ClaimPart[], b: readonly ClaimPart[]): boolean {
  const specs = b.flatMap((part) => part.specs);
  return a.length === b.length && a.flatMap((part) => part.specs).every((spec, index) => spec === specs[index]);
}
