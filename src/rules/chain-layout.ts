import type { IpFamily } from '../model/address.ts';
import type { Table } from '../model/iptables.ts';
import { sameList } from '../util/same-list.ts';
import {
  bucketChain,
  DOORS,
  DROP_PORT,
  firstInRoot,
  LAST_IN_ROOT,
  LET_IN,
  PORTALS_CONTAINER,
  PORTALS_HOST,
  REJECT_PORT,
  ROOT_CHAINS,
} from './chains.ts';
import type { Rule } from './rule.ts';
import { type RuleTrees, rulesOf } from './rule-set.ts';
import { type DestinationKey, prefixMatch, type RuleTree } from './rule-tree.ts';
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
  /** What the root's twin has at the same place. */
  readonly twin: RuleTree<RuleGroup> | undefined;
}

/**
 * Nearly all rules of portals are the same for pods and for the node's own processes. So a bucket with the same rules
 * as its twin's has no chain: what would lead there leads to the twin's.
 */
const TWINS: Readonly<Record<string, string>> = { [PORTALS_CONTAINER]: PORTALS_HOST };

/** Every chain of these trees. There may be many. */
export function* chainsOf(trees: RuleTrees, facts: LayoutFacts): Generator<Chain> {
  for (const root of roots(trees)) {
    for (const place of withAllBelow(root)) if (!isShared(place)) yield chainAt(place, facts);
  }
}

/** The chains of these trees that always exist. */
export function rootChains(trees: RuleTrees, facts: LayoutFacts): readonly Chain[] {
  return roots(trees).map((root) => chainAt(root, facts));
}

/** New and changed chains, and chains to delete. Skips trees that both have at the same place. */
export function layoutChange(before: RuleTrees, after: RuleTrees, facts: LayoutFacts) {
  const written: Chain[] = [];
  const deleted: string[] = [];
  for (const pair of differingPairs(before, after)) {
    const [old, wanted] = [own(pair.before), own(pair.after)];
    if (wanted === undefined) deleted.push(...(old === undefined ? [] : [nameOf(old)]));
    else if (!sameContents(old, wanted)) written.push(chainAt(wanted, facts));
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
      if (pair.before?.tree === pair.after?.tree && pair.before?.twin === pair.after?.twin) continue;
      if (pair.before !== undefined) add('before', below(pair.before));
      if (pair.after !== undefined) add('after', below(pair.after));
      yield pair;
    }
  }
}

function roots(trees: RuleTrees): Place[] {
  return [...trees].map(([root, tree]) => ({ root, prefix: '', tree, twin: trees.get(TWINS[root] ?? '') }));
}

function below({ root, tree, twin }: Place): Place[] {
  if (tree.kind === 'leaf') return [];
  const twins = twin?.kind === 'branch' && twin.prefix === tree.prefix ? twin.children : [];
  return tree.children.map(({ step, tree: child }) => {
    const prefix = tree.prefix + step;
    return { root, prefix, tree: child, twin: twins.find((other) => other.step === step)?.tree };
  });
}

/** The rules of this bucket are in its twin's chain. */
function isShared({ prefix, tree, twin }: Place): boolean {
  return prefix !== '' && tree.kind === 'leaf' && twin?.kind === 'leaf' && sameSpecs(tree.items, twin.items);
}

/** Without a shared place, which has no chain of its own. */
function own(place: Place | undefined): Place | undefined {
  return place === undefined || isShared(place) ? undefined : place;
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

function nameOf(place: Place): string {
  const { root, prefix } = place;
  if (prefix === '') return root;
  return bucketChain(isShared(place) ? (TWINS[root] as string) : root, prefix);
}

function sameContents(a: Place | undefined, b: Place): boolean {
  if (a === undefined || a.tree.kind !== b.tree.kind) return false;
  if (a.tree.kind === 'leaf') return b.tree.kind === 'leaf' && sameSpecs(a.tree.items, b.tree.items);
  return sameList(below(a).map(nameOf), below(b).map(nameOf));
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
