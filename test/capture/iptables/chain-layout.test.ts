import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CLAIM_KINDS, type Claim, claimsOf } from '../../../src/capture/claims.ts';
import { type Chain, chainsOf, layoutChange } from '../../../src/capture/iptables/chain-layout.ts';
import { PORTALS_CONTAINER, PORTALS_HOST, TREE_NAMES, TREES } from '../../../src/capture/iptables/chains.ts';
import { groupsOf, type RuleGroup, rulePartsOf } from '../../../src/capture/iptables/claim-rules.ts';
import { jumpTarget } from '../../../src/capture/iptables/dump.ts';
import { itemsOf, type RuleTree } from '../../../src/capture/iptables/rule-tree.ts';
import type { RuleTrees } from '../../../src/capture/iptables/rule-trees.ts';
import type { NodeFacts, Portal } from '../../../src/model/capture.ts';
import { ENDPOINT } from '../../support/model.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { IPV6_NODE, nodeFacts, portal, Rules } from '../fixtures.ts';

const TABLES = ['nat', 'filter'] as const;

/** Of both tables. */
type Snapshot = Readonly<Record<(typeof TABLES)[number], RuleTrees>>;

function snapshot(book: Rules): Snapshot {
  return { nat: book.trees('nat'), filter: book.trees('filter') };
}

function changesOf(before: Snapshot, after: Snapshot, { family }: NodeFacts) {
  const changes = TABLES.flatMap((table) => [...layoutChange(before[table], after[table], { table, family })]);
  return {
    written: changes.flatMap((change) => ('written' in change ? [change.written] : [])),
    deleted: changes.flatMap((change) => ('deleted' in change ? [change.deleted] : [])),
  };
}

function allChains(trees: Snapshot, { family }: NodeFacts): readonly Chain[] {
  return TABLES.flatMap((table) => [...chainsOf(trees[table], { table, family })]);
}

type Chains = Map<string, readonly string[]>;

describe('changes of rules', () => {
  for (const [what, seed, node] of [
    ['IPv4', 1, nodeFacts({ clusterCidrs: ['10.244.0.0/16', 'fd00:244::/56'] })],
    ['IPv4 with NodePorts on some networks', 2, nodeFacts({ nodePortCidrs: ['10.0.0.0/8', '192.168.0.0/16'] })],
    ['IPv6', 3, IPV6_NODE],
  ] as const) {
    test(`one at a time come to the same as all at once: ${what}`, () => {
      const random = seededRandom(seed);
      const portals = new Map<string, Portal>();
      const book = new Rules(node, []);
      let trees = snapshot(book);
      const kernel = contents(trees, node);
      let buckets = 0;
      let [isSharing, isApart] = [false, false];
      for (let step = 0; step < 1_500; step++) {
        const growing = step < 600 || step % 400 < 200;
        for (let changes = random() * 4; changes > 0; changes--) change(book, portals, random, growing);
        apply(kernel, trees, snapshot(book), node);
        trees = snapshot(book);
        buckets = Math.max(buckets, kernel.size);
        if (step % 50 !== 0) continue;
        const again = new Rules(node, shuffled([...portals.values()], random));
        assert.deepEqual(sorted(kernel), sorted(contents(snapshot(again), node)));
        assert.deepEqual(byText(book.conflicts()), byText(again.conflicts()));
        assert.deepEqual(flattened(trees), granted(portals.values(), node));
        for (const root of [PORTALS_CONTAINER, PORTALS_HOST]) {
          assert.deepEqual(reached(kernel, root).sort(), below(root, flattened(trees)), root);
        }
        assertTopDown(kernel, trees, node);
        isSharing ||= targetsBelow(kernel, PORTALS_CONTAINER).some((chain) => chain.startsWith('KUBE-USP-PB-'));
        isApart ||= (trees.nat.get('PC')?.size ?? 0) > 0;
      }
      assert.ok(buckets > 20, `only ${buckets} chains at most`);
      assert.deepEqual([isSharing, isApart], [true, true]);
    });
  }

  test('among 10,000 Services rewrite only a few lines', () => {
    const node = nodeFacts();
    const book = new Rules(
      node,
      Array.from({ length: 10_000 }, (_, i) =>
        portal({
          name: `ns/svc-${i}`,
          clusterIPs: [`10.96.${i >> 8}.${i & 255}`],
          nodePort: i % 4 === 0 ? 30_000 + i / 4 : 0,
          localPort: 32_768 + i,
        }),
      ),
    );
    for (const [what, act] of [
      ['one more', () => book.set(portal({ name: 'ns/new', clusterIPs: ['10.96.200.1'], nodePort: 32_700 }))],
      ['one less', () => book.remove('ns/svc-5000')],
      ['another local port', () => book.set(portal({ name: 'ns/svc-40', clusterIPs: ['10.96.0.40'], localPort: 9 }))],
      ['an address far off', () => book.set(portal({ name: 'ns/far', clusterIPs: ['203.0.113.7'] }))],
    ] as const) {
      const before = snapshot(book);
      act();
      const { written, deleted } = changesOf(before, snapshot(book), node);
      const lines = written.reduce((sum, chain) => sum + specsOf(chain).length, deleted.length);
      assert.ok(lines > 0 && lines < 300, `${what}: ${lines} lines`);
    }
    assert.deepEqual(changesOf(snapshot(book), snapshot(book), node), { written: [], deleted: [] });
  });

  test('are found without visiting subtrees that are shared', () => {
    const shared: RuleTree<RuleGroup> = {
      kind: 'branch',
      size: 500,
      prefix: 't0',
      get children(): never {
        throw new Error('looked at');
      },
    };
    const [item] = groupsAt(portal({ name: 'a/a', nodePort: 0x1000 }), nodeFacts()).filter(({ tree }) => tree === 'NH');
    assert.ok(item);
    const treesWith = (items: readonly RuleGroup[]): RuleTrees => {
      const beside: RuleTree<RuleGroup> = { kind: 'leaf', size: items.length, items };
      const children = [
        { step: '0', tree: shared },
        { step: '1', tree: beside },
      ];
      return new Map([['NH', { kind: 'branch', size: 501, prefix: 't', children }]]);
    };
    const changes = layoutChange(treesWith([]), treesWith([item]), { table: 'nat', family: 'IPv4' });
    assert.deepEqual(
      Array.from(changes, (change) => ('written' in change ? change.written.name : change)),
      ['KUBE-USP-NH-t1'],
    );
  });

  test('move a claim to another tree when its rules begin to differ between pods and the node, and back', () => {
    const node = nodeFacts();
    const same = portal({ name: 'a/a', loadBalancerIPs: ['203.0.113.1'] });
    const apart = portal({
      ...{ name: 'a/a', loadBalancerIPs: ['203.0.113.1'], localSetPort: 40_002 },
      local: { endpoints: [ENDPOINT], internal: false, external: true },
    });
    const book = new Rules(node, [same]);
    const kernel = contents(snapshot(book), node);
    for (const each of [apart, same]) {
      const before = snapshot(book);
      book.set(each);
      apply(kernel, before, snapshot(book), node);
      assert.deepEqual(sorted(kernel), sorted(contents(snapshot(new Rules(node, [each])), node)));
    }
  });

  test('that make the same rules again write nothing', () => {
    const node = nodeFacts();
    const book = new Rules(node, [portal({ name: 'a/a', clusterIPs: ['10.96.0.1'], nodePort: 30_001 })]);
    const before = snapshot(book);
    book.set(portal({ name: 'a/a', clusterIPs: ['10.96.0.1'], nodePort: 30_001 }));
    assert.deepEqual(changesOf(before, snapshot(book), node), { written: [], deleted: [] });
  });
});

/** Writes and deletes as one transaction would, and holds it to what the kernel insists on. */
function apply(kernel: Chains, before: Snapshot, after: Snapshot, node: NodeFacts): void {
  const { written, deleted } = changesOf(before, after, node);
  for (const chain of written) {
    assert.notDeepEqual(kernel.get(chain.name), specsOf(chain), `${chain.name} was as it is wanted`);
    kernel.set(chain.name, specsOf(chain));
  }
  for (const name of deleted) assert.ok(kernel.delete(name), `${name} was there`);
  for (const specs of kernel.values()) {
    for (const target of targetsOf(specs)) assert.ok(kernel.has(target), `${target} is there`);
  }
}

/** By the specs of a chain. Thousands of chains stay as they are at each step. */
const TARGETS = new WeakMap<readonly string[], readonly string[]>();

/** The chains of ours that a chain leads to. */
function targetsOf(specs: readonly string[]): readonly string[] {
  let targets = TARGETS.get(specs);
  if (targets === undefined) {
    targets = specs.flatMap((spec) => jumpTarget(spec) ?? []).filter((target) => target.startsWith('KUBE-'));
    TARGETS.set(specs, targets);
  }
  return targets;
}

/** Chains that packets may meet after this one, those of other roots left out. */
function targetsBelow(kernel: Chains, chain: string): readonly string[] {
  const targets = targetsOf(kernel.get(chain) ?? []).filter((target) => target.startsWith('KUBE-USP-P'));
  return targets.flatMap((target) => [target, ...targetsBelow(kernel, target)]);
}

/** The rules below a root of portals, without the jumps between its chains. */
function reached(kernel: Chains, root: string): string[] {
  const specs = [root, ...targetsBelow(kernel, root)].flatMap((chain) => kernel.get(chain) ?? []);
  return specs.filter((spec) => !jumpTarget(spec)?.startsWith('KUBE-USP-P'));
}

/** What is written in parts begins at the end, and no chain may lead to one that is still to be written. */
function assertTopDown(kernel: Chains, trees: Snapshot, node: NodeFacts): void {
  const names = allChains(trees, node).map(({ name }) => name);
  const places = new Map(names.map((name, index) => [name, index]));
  for (const [name, index] of places) {
    for (const target of targetsOf(kernel.get(name) ?? [])) {
      assert.ok((places.get(target) ?? Number.POSITIVE_INFINITY) > index, `${name} stands before ${target}`);
    }
  }
}

/** A Service port of few names and fewer addresses, so that many want the same. */
function change(book: Rules, portals: Map<string, Portal>, random: () => number, growing: boolean): void {
  const number = (below: number) => Math.floor(random() * below);
  const name = `ns/svc-${number(900)}`;
  if (random() < (growing ? 0.1 : 0.8)) {
    portals.delete(name);
    book.remove(name as Portal['servicePort']['name']);
    return;
  }
  const some = (prefix4: string, prefix6: string, count: number) =>
    Array.from({ length: number(count + 1) }, () =>
      random() < 0.5 ? `${prefix4}${number(3)}.${number(200)}` : `${prefix6}${number(700).toString(16)}`,
    );
  const fresh = portal({
    name,
    protocol: random() < 0.2 ? 'UDP' : 'TCP',
    port: random() < 0.8 ? 80 : 1 + number(65_535),
    clusterIPs: some('10.96.', 'fd00:96::', 2),
    externalIPs: random() < 0.1 ? some('203.0.', 'fd00:96::', 2) : [],
    loadBalancerIPs: random() < 0.1 ? some('10.96.', '2001:db8::', 2) : [],
    nodePort: random() < 0.6 ? 30_000 + number(600) : 0,
    localPort: 1 + number(65_535),
    ...(random() < 0.2 && { endpoints: [] }),
    ...(random() < 0.2 && {
      loadBalancerSourceRanges: some('192.0.', '2001:db8:9::', 3).map(
        (from) => `${from}/${from.includes(':') ? 128 : 32}`,
      ),
    }),
    ...(random() < 0.3 && {
      localSetPort: 1 + number(65_535),
      local: { endpoints: random() < 0.8 ? [ENDPOINT] : [], internal: random() < 0.3, external: random() < 0.7 },
    }),
  });
  portals.set(name, fresh);
  book.set(fresh);
}

function contents(trees: Snapshot, node: NodeFacts): Chains {
  return new Map(allChains(trees, node).map((chain) => [chain.name, specsOf(chain)]));
}

function specsOf({ rules, jumps }: Chain): readonly string[] {
  return [...rules.map((rule) => rule.spec), ...jumps];
}

/** What stands in each tree, without regard to buckets. */
function flattened({ nat, filter }: Snapshot): Record<string, readonly string[]> {
  const specs = (parts: Iterable<RuleGroup>) => [...parts].flatMap((part) => part.specs);
  return Object.fromEntries([...nat, ...filter].map(([name, tree]) => [name, specs(itemsOf(tree)).sort()]));
}

function below(root: string, trees: Record<string, readonly string[]>): readonly string[] {
  const names = TREE_NAMES.filter((name) => (TREES[name] as readonly string[]).includes(root));
  return names.flatMap((name) => trees[name] ?? []).sort();
}

/** The same by the plainest way: all claims in the order of their strength, each destination to the first. */
function granted(portals: Iterable<Portal>, node: NodeFacts): Record<string, readonly string[]> {
  const claims = [...portals].flatMap((each) => claimsOf(each, node));
  const held = new Map<string, Claim>();
  for (const kind of CLAIM_KINDS) {
    for (const claim of claims.filter((each) => each.kind === kind).sort(byOwner)) {
      if (!held.has(claim.what)) held.set(claim.what, claim);
    }
  }
  const groups = [...held.values()].flatMap((claim) => groupsOf(claim, rulePartsOf(node)));
  const ofTree = (name: string) => groups.filter(({ tree }) => tree === name).flatMap(({ specs }) => specs);
  return Object.fromEntries(TREE_NAMES.map((name) => [name, ofTree(name).sort()]));
}

function groupsAt(of: Portal, node: NodeFacts): readonly RuleGroup[] {
  return claimsOf(of, node).flatMap((claim) => groupsOf(claim, rulePartsOf(node)));
}

function byOwner(a: Claim, b: Claim): number {
  if (a.owner === b.owner) return a.index - b.index;
  return a.owner < b.owner ? -1 : 1;
}

function sorted(chains: Chains): [string, readonly string[]][] {
  return [...chains].sort(([a], [b]) => (a < b ? -1 : 1));
}

function byText(conflicts: readonly object[]): readonly string[] {
  return conflicts.map((conflict) => JSON.stringify(conflict)).sort();
}

function shuffled<T>(list: readonly T[], random: () => number): readonly T[] {
  return list
    .map((item) => ({ item, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
