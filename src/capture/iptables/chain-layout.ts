import type { IpFamily } from '../../model/address.ts';
import { sameList } from '../../util/same-list.ts';
import { DROP_PORT, REJECT_PORT } from '../portal.ts';
import {
  bucketChain,
  DOORS,
  firstInRoot,
  LAST_IN_ROOT,
  LET_IN,
  ROOT_CHAINS,
  TREES,
  type TreeName,
  UNASSIGNED,
} from './chains.ts';
import { type RuleGroup, rulesOf } from './claim-rules.ts';
import type { Table } from './iptables.ts';
import type { Rule } from './rule.ts';
import { type DestinationKey, prefixMatch, type RuleTree } from './rule-tree.ts';
import { type RuleTrees, treesBelow } from './rule-trees.ts';

/** One of our chains: rules, then jumps to other chains of ours. */
export interface Chain {
  readonly name: string;
  readonly rules: readonly Rule[];
  readonly jumps: readonly string[];
}

/** `connectionMark`: as in `DataPlaneOptions`. */
export interface LayoutFacts {
  readonly table: Table;
  readonly family: IpFamily;
  readonly connectionMark?: number | undefined;
}

/** A part of a tree. Below the empty prefix is all of it, whose rules or jumps are in root chains. */
interface Place {
  readonly of: TreeName;
  readonly prefix: DestinationKey;
  readonly tree: RuleTree<RuleGroup>;
}

/** Every chain of these trees. There may be many. */
export function* chainsOf(trees: RuleTrees, facts: LayoutFacts): Generator<Chain> {
  yield* rootChains(trees, facts);
  for (const [of, tree] of trees) {
    for (const place of allBelow({ of, prefix: '', tree })) yield bucket(place, facts.family);
  }
}

/** The chains of these trees that always exist. */
export function rootChains(trees: RuleTrees, facts: LayoutFacts): readonly Chain[] {
  return ROOT_CHAINS[facts.table].map((root) => rootChain(root, trees, facts));
}

/** A new or changed chain, or the name of one to delete. */
type ChainChange = { readonly written: Chain } | { readonly deleted: string };

/** The chains that differ. There may be many. Skips trees that both have at the same place. */
export function* layoutChange(before: RuleTrees, after: RuleTrees, facts: LayoutFacts): Generator<ChainChange> {
  const roots = new Set<string>();
  for (const { before: old, after: wanted } of differingPairs(before, after)) {
    if (wanted === undefined) {
      if (old !== undefined) yield { deleted: nameOf(old) };
    } else if (wanted.prefix === '') {
      for (const root of TREES[wanted.of]) roots.add(root);
    } else if (!sameContents(old, wanted)) {
      yield { written: bucket(wanted, facts.family) };
    }
  }
  for (const root of roots) {
    const written = rootChain(root, after, facts);
    // The same rule may have gone from one tree to another.
    if (!sameList(specsIn(rootChain(root, before, facts)), specsIn(written))) yield { written };
  }
}

interface PlacePair {
  before?: Place;
  after?: Place;
}

/** Different trees at the same place. */
function* differingPairs(before: RuleTrees, after: RuleTrees): Generator<PlacePair> {
  const byLength: Map<string, PlacePair>[] = [];
  const add = (side: keyof PlacePair, places: Iterable<Place>) => {
    for (const place of places) {
      const pairs = byLength[place.prefix.length] ?? new Map<string, PlacePair>();
      byLength[place.prefix.length] = pairs;
      const key = `${place.of} ${place.prefix}`;
      const pair = pairs.get(key) ?? {};
      pair[side] = place;
      pairs.set(key, pair);
    }
  };
  add(
    'before',
    Array.from(before, ([of, tree]) => ({ of, prefix: '', tree })),
  );
  add(
    'after',
    Array.from(after, ([of, tree]) => ({ of, prefix: '', tree })),
  );
  for (let length = 0; length < byLength.length; length++) {
    for (const pair of byLength[length]?.values() ?? []) {
      if (pair.before?.tree === pair.after?.tree) continue;
      if (pair.before !== undefined) add('before', below(pair.before));
      if (pair.after !== undefined) add('after', below(pair.after));
      yield pair;
    }
  }
}

function below({ of, tree }: Place): readonly Place[] {
  if (tree.kind === 'leaf') return [];
  return tree.children.map(({ step, tree: child }) => ({ of, prefix: tree.prefix + step, tree: child }));
}

function* allBelow(place: Place): Generator<Place> {
  for (const child of below(place)) {
    yield child;
    yield* allBelow(child);
  }
}

function rootChain(root: string, trees: RuleTrees, { table, family, connectionMark }: LayoutFacts): Chain {
  const places = treesBelow(root, trees).map(([of, tree]): Place => ({ of, prefix: '', tree }));
  const first = firstInRoot(root, connectionMark).map((spec): Rule => ({ table, chain: root, spec }));
  const rules = [...first, ...places.flatMap((place) => rulesAt(place, root))];
  const jumps = places.flatMap((place) => jumpsAt(place, family));
  const last = LAST_IN_ROOT.get(root);
  return { name: root, rules, jumps: last === undefined ? jumps : [...jumps, last] };
}

function bucket(place: Place, family: IpFamily): Chain {
  const name = nameOf(place);
  return { name, rules: rulesAt(place, TREES[place.of][0]), jumps: jumpsAt(place, family) };
}

/** `chain`: the root chain that is named for them. */
function rulesAt({ tree }: Place, chain: string): readonly Rule[] {
  return tree.kind === 'leaf' ? tree.items.flatMap((group) => rulesOf(group, chain)) : [];
}

function jumpsAt(place: Place, family: IpFamily): readonly string[] {
  return below(place).map((child) => `${prefixMatch(child.prefix, family)} -j ${nameOf(child)}`);
}

function nameOf({ of, prefix }: Place): string {
  return bucketChain(of, prefix);
}

function sameContents(old: Place | undefined, wanted: Place): boolean {
  if (old === undefined || old.tree.kind !== wanted.tree.kind) return false;
  const sameChildren = sameList(below(old).map(nameOf), below(wanted).map(nameOf));
  return sameChildren && sameList(specsOf(old.tree), specsOf(wanted.tree));
}

/** Everything in a chain, in order. */
function specsIn({ rules, jumps }: Chain): readonly string[] {
  return [...rules.map(({ spec }) => spec), ...jumps];
}

function specsOf(tree: RuleTree<RuleGroup>): readonly string[] {
  return tree.kind === 'leaf' ? tree.items.flatMap(({ specs }) => specs) : [];
}

/** Chains that do not depend on Services. `unassigned`: the rules of that chain. */
export function fixedChains(table: Table, family: IpFamily, unassigned: readonly string[] = []): readonly Chain[] {
  if (table === 'nat' && unassigned.length > 0) {
    const rules = unassigned.map((spec): Rule => ({ table, chain: UNASSIGNED, spec }));
    return [{ name: UNASSIGNED, rules, jumps: [] }];
  }
  if (table !== 'filter') return [];
  const unreachable = family === 'IPv4' ? 'icmp-port-unreachable' : 'icmp6-port-unreachable';
  const rule = (protocol: 'tcp' | 'udp', port: number, target: string): Rule => ({
    table,
    chain: DOORS,
    spec: `-p ${protocol} -m ${protocol} --dport ${port} -m conntrack --ctstate DNAT -j ${target}`,
  });
  const rules = [
    // Accepted, so that the node's own stack resets the connection. Where bridged packets pass iptables (br_netfilter),
    // a reset from this rule would not return through NAT.
    rule('tcp', REJECT_PORT, 'ACCEPT'),
    // Rejected here, so that no conntrack entry rejects the flow after endpoints have come.
    rule('udp', REJECT_PORT, `REJECT --reject-with ${unreachable}`),
    rule('tcp', DROP_PORT, 'DROP'),
    rule('udp', DROP_PORT, 'DROP'),
  ];
  return [{ name: DOORS, rules, jumps: [`-m conntrack ! --ctstate DNAT -j ${LET_IN}`] }];
}
