import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Chain, chainsOf, layoutChange } from '../../src/rules/chain-layout.ts';
import { PORTALS_CONTAINER, PORTALS_HOST, ROOT_CHAINS } from '../../src/rules/chains.ts';
import { jumpTarget } from '../../src/rules/dump.ts';
import type { Portal } from '../../src/rules/portal.ts';
import { RuleSet, type RuleTrees } from '../../src/rules/rule-set.ts';
import { itemsOf, type RuleTree } from '../../src/rules/rule-tree.ts';
import {
  type Claim,
  claimsOf,
  type NodeFacts,
  RULE_KINDS,
  type RuleGroup,
  rulePartsOf,
} from '../../src/rules/service-rules.ts';
import { ENDPOINT } from '../support/model.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { IPV6_NODE, nodeFacts, portal } from './fixtures.ts';

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
      const book = new RuleSet(node, []);
      let trees = book.trees();
      const kernel = contents(trees, node);
      let buckets = 0;
      let [isSharing, isApart] = [false, false];
      for (let step = 0; step < 1_500; step++) {
        const growing = step < 600 || step % 400 < 200;
        for (let changes = random() * 4; changes > 0; changes--) change(book, portals, random, growing);
        apply(kernel, trees, book.trees(), node);
        trees = book.trees();
        buckets = Math.max(buckets, kernel.size);
        if (step % 50 !== 0) continue;
        const again = new RuleSet(node, shuffled([...portals.values()], random));
        assert.deepEqual(sorted(kernel), sorted(contents(again.trees(), node)));
        assert.deepEqual(byText(book.conflicts()), byText(again.conflicts()));
        assert.deepEqual(flattened(trees), granted(portals.values(), node));
        for (const root of [PORTALS_CONTAINER, PORTALS_HOST]) {
          assert.deepEqual(reached(kernel, root).sort(), flattened(trees)[root], root);
        }
        assertTopDown(kernel, trees, node);
        isSharing ||= targetsBelow(kernel, PORTALS_CONTAINER).some((chain) => chain.startsWith('KUBE-USP-PH-'));
        isApart ||= targetsBelow(kernel, PORTALS_CONTAINER).some((chain) => chain.startsWith('KUBE-USP-PC-'));
      }
      assert.ok(buckets > 20, `only ${buckets} chains at most`);
      assert.deepEqual([isSharing, isApart], [true, true]);
    });
  }

  test('among 10,000 Services rewrite only a few lines', () => {
    const node = nodeFacts();
    const book = new RuleSet(
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
      const before = book.trees();
      act();
      const { written, deleted } = layoutChange(before, book.trees(), node);
      const lines = written.reduce((sum, chain) => sum + specsOf(chain).length, deleted.length);
      assert.ok(lines > 0 && lines < 300, `${what}: ${lines} lines`);
    }
    assert.deepEqual(layoutChange(book.trees(), book.trees(), node), { written: [], deleted: [] });
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
    const [claim] = claimsOf(portal({ name: 'a/a', nodePort: 0x1000 }), rulePartsOf(nodeFacts()));
    const treesWith = (items: readonly RuleGroup[]): RuleTrees => {
      const beside: RuleTree<RuleGroup> = { kind: 'leaf', size: items.length, items };
      const children = [
        { step: '0', tree: shared },
        { step: '1', tree: beside },
      ];
      return new Map([['KUBE-NODEPORT-HOST', { kind: 'branch', size: 501, prefix: 't', children }]]);
    };
    const { written, deleted } = layoutChange(treesWith([]), treesWith(claim?.groups.slice(1, 2) ?? []), {
      family: 'IPv4',
    });
    assert.deepEqual([written.map(({ name }) => name), deleted], [['KUBE-USP-NH-t1'], []]);
  });

  test('part two buckets that were one chain, and join them again', () => {
    const [claim] = claimsOf(portal({ name: 'a/a', clusterIPs: ['10.96.0.1'] }), rulePartsOf(nodeFacts()));
    const items = claim?.groups.slice(0, 1) ?? [];
    const treeWith = (leaf: readonly RuleGroup[]): RuleTree<RuleGroup> => {
      const tree = { kind: 'leaf', size: 1, items: leaf } as const;
      return { kind: 'branch', size: 2, prefix: '0a60', children: ['0', '1'].map((step) => ({ step, tree })) };
    };
    const pods = treeWith(items);
    const treesWith = (host: RuleTree<RuleGroup>) =>
      new Map([
        [PORTALS_CONTAINER, pods],
        [PORTALS_HOST, host],
      ]);
    const [same, other] = [treesWith(treeWith(items)), treesWith(treeWith([...items, ...items]))];
    const ofPods = ({ written, deleted }: ReturnType<typeof layoutChange>) => [
      written.map(({ name }) => name).filter((name) => !/-HOST|-PH-/.test(name)),
      deleted,
    ];
    const buckets = ['KUBE-USP-PC-0a600', 'KUBE-USP-PC-0a601'];
    assert.deepEqual(ofPods(layoutChange(same, other, { family: 'IPv4' })), [[PORTALS_CONTAINER, ...buckets], []]);
    assert.deepEqual(ofPods(layoutChange(other, same, { family: 'IPv4' })), [[PORTALS_CONTAINER], buckets]);
  });

  test('that make the same rules again write nothing', () => {
    const node = nodeFacts();
    const book = new RuleSet(node, [portal({ name: 'a/a', clusterIPs: ['10.96.0.1'], nodePort: 30_001 })]);
    const before = book.trees();
    book.set(portal({ name: 'a/a', clusterIPs: ['10.96.0.1'], nodePort: 30_001 }));
    assert.deepEqual(layoutChange(before, book.trees(), node), { written: [], deleted: [] });
  });
});

/** Writes and deletes as one transaction would, and holds it to what the kernel insists on. */
function apply(kernel: Chains, before: RuleTrees, after: RuleTrees, node: NodeFacts): void {
  const { written, deleted } = layoutChange(before, after, node);
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
function assertTopDown(kernel: Chains, trees: RuleTrees, node: NodeFacts): void {
  const names = [...chainsOf(trees, node)].map(({ name }) => name);
  const places = new Map(names.map((name, index) => [name, index]));
  for (const [name, index] of places) {
    for (const target of targetsOf(kernel.get(name) ?? [])) {
      assert.ok((places.get(target) ?? Number.POSITIVE_INFINITY) > index, `${name} stands before ${target}`);
    }
  }
}

/** A Service port of few names and fewer addresses, so that many want the same. */
function change(book: RuleSet, portals: Map<string, Portal>, random: () => number, growing: boolean): void {
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

function contents(trees: RuleTrees, node: NodeFacts): Chains {
  return new Map([...chainsOf(trees, node)].map((chain) => [chain.name, specsOf(chain)]));
}

function specsOf({ rules, jumps }: Chain): readonly string[] {
  return [...rules.map((rule) => rule.spec), ...jumps];
}

/** What stands below each root, without regard to buckets. */
function flattened(trees: RuleTrees): Record<string, readonly string[]> {
  const specs = (parts: Iterable<RuleGroup>) => [...parts].flatMap((part) => part.specs);
  return Object.fromEntries([...trees].map(([root, tree]) => [root, specs(itemsOf(tree)).sort()]));
}

/** The same by the plainest way: all claims in the order of their strength, each destination to the first. */
function granted(portals: Iterable<Portal>, node: NodeFacts): Record<string, readonly string[]> {
  const claims = [...portals].flatMap((each) => claimsOf(each, rulePartsOf(node)));
  const held = new Map<string, Claim>();
  for (const kind of RULE_KINDS) {
    const ofKind = claims.filter((claim) => claim.rank.kind === kind);
    for (const claim of ofKind.sort((a, b) => byOwner(a.rank, b.rank))) {
      if (!held.has(claim.what)) held.set(claim.what, claim);
    }
  }
  const parts = [...held.values()].flatMap((claim) => claim.groups);
  const roots = [...ROOT_CHAINS.nat, ...ROOT_CHAINS.filter];
  return Object.fromEntries(
    roots.map((root) => [
      root,
      parts
        .filter(({ chain }) => chain === root)
        .flatMap((part) => part.specs)
        .sort(),
    ]),
  );
}

function byOwner(a: Claim['rank'], b: Claim['rank']): number {
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
