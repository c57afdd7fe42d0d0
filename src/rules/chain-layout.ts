import type { IpFamily } from '../model/address.ts';
import type { Table } from '../model/iptables.ts';
import {
  bucketChain,
  DOORS,
  DROP_PORT,
  firstInRoot,
  LAST_IN_ROOT,
  LET_IN,
  REJECT_PORT,
  ROOT_CHAINS,
} from './chains.ts';
import type { Rule } from './rule.ts';
import { type RuleTrees, rulesOf } from './rule-set.ts';
import { type Branch, type DestinationKey, prefixMatch, type RuleTree } from './rule-tree.ts';
import type { RuleGroup } from './service-rules.ts';

/** One of our chains: rules, then jumps to other chains of ours. */
export interface Chain {
  readonly name: string;
  readonly rules: readonly Rule[];
  readonly jumps: readonly string[];
}

/** `connectionMark`: as in `DataPlaneOptions`. */
interface LayoutFacts {
  readonly family: IpFamily;
  readonly connectionMark?: number | undefined;
}

/** A place in a root's tree; the root itself is below the empty prefix. */
interface Place {
  readonly root: string;
  readonly prefix: DestinationKey;
  readonly tree: RuleTree<RuleGroup>;
}

/** Every chain of these trees. There may be many. */
export function* chainsOf(trees: RuleTrees, facts: LayoutFacts): Generator<Chain> {
  for (const root of roots(trees)) {
    for (const place of withAllBelow(root)) yield chainAt(place, facts);
  }
}

/** The chains of these trees that always exist. */
export function rootChains(trees: RuleTrees, facts: LayoutFacts): readonly Chain[] {
  const always = new Set(Object.values(ROOT_CHAINS).flat());
  return roots(trees)
    .filter(({ root }) => always.has(root))
    .map((root) => chainAt(root, facts));
}

/** New and changed chains, and chains to delete. Skips trees that both have at the same place. */
export function layoutChange(before: RuleTrees, after: RuleTrees, facts: LayoutFacts) {
  const written: Chain[] = [];
  const deleted: string[] = [];
  for (const pair of differingPairs(before, after)) {
    if (pair.after === undefined) deleted.push(...(pair.before === undefined ? [] : [nameOf(pair.before)]));
    else if (!sameContents(pair.before?.tree, pair.after.tree)) written.push(chainAt(pair.after, facts));
  }
  return { written, deleted };
}

type PlacePair = { before?: Place; after?: Place };

/** Different trees at the same place. Shorter prefixes come first, so parents come before their children. */
function* differingPairs(before: RuleTrees, after: RuleTrees): Generator<PlacePair> {
  const byLength: Map<string, PlacePair>[] = [];
  const add = (side: keyof PlacePair, places: readonly Place[]) => {
    for (const place of places) {
      const pairs = byLength[place.prefix.length] ?? new Map<string, PlacePair>();
      byLength[place.prefix.length] = pairs;
      const key = `${place.root} ${place.prefix}`;
      const pair = pairs.get(key) ?? {};
      pair[side] = place;
      pairs.set(key, pair);
    }
  };
  add('before', roots(before));
  add('after', roots(after));
  for (let length = 0; length < byLength.length; length++) {
    for (const pair of byLength[length]?.values() ?? []) {
      if (pair.before?.tree === pair.after?.tree) continue;
      if (pair.before !== undefined) add('before', below(pair.before));
      if (pair.after !== undefined) add('after', below(pair.after));
      yield pair;
    }
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

function sameContents(a: RuleTree<RuleGroup> | undefined, b: RuleTree<RuleGroup>): boolean {
  if (a === undefined) return false;
  if (a.kind === 'branch') return b.kind === 'branch' && sameJumps(a, b);
  return b.kind === 'leaf' && sameSpecs(a.items, b.items);
}

function sameJumps(a: Branch<RuleGroup>, b: Branch<RuleGroup>): boolean {
  return (
    a.prefix === b.prefix &&
    a.children.length === b.children.length &&
    a.children.every(({ step }, index) => step === b.children[index]?.step)
  );
}

function sameSpecs(a: readonly RuleGroup[], b: readonly RuleGroup[]): boolean {
  const specs = b.flatMap((part) => part.specs);
  return a.length === b.length && a.flatMap((part) => part.specs).every((spec, index) => spec === specs[index]);
}

/** Chains that do not depend on Services. */
export function fixedChains(table: Table, family: IpFamily): readonly Chain[] {
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
