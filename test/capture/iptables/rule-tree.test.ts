import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bucketChain, isOurs, PORTALS_CONTAINER, TREE_NAMES } from '../../../src/capture/iptables/chains.ts';
import {
  addressKey,
  emptyTree,
  itemsOf,
  type Layout,
  portKey,
  prefixMatch,
  type RuleTree,
  type TreeItem,
  treeOf,
  withItem,
  withoutItem,
} from '../../../src/capture/iptables/rule-tree.ts';
import { address } from '../../support/model.ts';
import { seededRandom } from '../../support/seeded-random.ts';

interface Item extends TreeItem {
  readonly id: number;
}

const MAX_LEAF = 128;
const byId = (a: Item, b: Item) => a.id - b.id;
const LAYOUT: Layout<Item> = { order: byId, maxLeaf: MAX_LEAF };
const item = (id: number, key: string, rules = 1): Item => ({ id, key, specs: { length: rules } });
const onPort = (id: number, port: number, rules = 1) => item(id, portKey('TCP', port), rules);

function grown(items: Iterable<Item>): RuleTree<Item> {
  let tree = emptyTree<Item>();
  for (const each of items) tree = withItem(tree, each, LAYOUT);
  return tree;
}

describe('a rule tree', () => {
  test('is one leaf up to its limit, and branches beyond it', () => {
    const items = Array.from({ length: MAX_LEAF }, (_, i) => onPort(i, 30_000 + i));
    assert.equal(grown(items).kind, 'leaf');
    const tree = grown([...items, onPort(MAX_LEAF, 30_300)]);
    assert.ok(tree.kind === 'branch');
    assert.equal(tree.prefix, 't7', '30,000 to 30,300 are 7530 to 765c in hexadecimal');
    assert.deepEqual(
      tree.children.map(({ step }) => step),
      ['5', '6'],
    );
    assert.equal(tree.size, MAX_LEAF + 1);
  });

  test('counts rules, not items', () => {
    assert.equal(grown([onPort(1, 1, 100), onPort(2, 4096, 100)]).kind, 'branch');
  });

  test('keeps items of one destination in one leaf', () => {
    const items = Array.from({ length: 2 * MAX_LEAF }, (_, i) => onPort(i, 80));
    assert.equal(grown(items).kind, 'leaf');
    const tree = grown([...items, onPort(1_000, 81)]);
    assert.ok(tree.kind === 'branch');
    assert.deepEqual(withoutItem(tree, onPort(1_000, 81), LAYOUT), treeOf(items, MAX_LEAF));
  });

  test('adds an item without a common prefix at the right side', () => {
    const items = Array.from({ length: 200 }, (_, i) => onPort(i, 0x7500 + i));
    for (const far of [onPort(999, 0x1000), onPort(999, 0x7600), item(999, portKey('UDP', 1))]) {
      assert.deepEqual(withItem(grown(items), far, LAYOUT), treeOf([...items, far], MAX_LEAF));
    }
  });

  test('shares unchanged subtrees', () => {
    const before = grown(Array.from({ length: 4096 }, (_, i) => onPort(i, 32_768 + i)));
    const after = withItem(before, onPort(9_999, 32_768 + 5_000), LAYOUT);
    const nodes = new Set(nodesOf(before));
    const fresh = [...nodesOf(after)].filter((node) => !nodes.has(node));
    assert.ok(fresh.length <= 4, `${fresh.length} nodes are new`);
  });

  test('refuses to remove an item that it does not have', () => {
    const tree = grown(Array.from({ length: 500 }, (_, i) => onPort(i, i)));
    assert.throws(() => withoutItem(tree, onPort(9_999, 60_000), LAYOUT), /No item with the key tea60/);
  });

  for (const [what, seed, keys] of [
    ['ports side by side', 1, (random: () => number) => portKey('TCP', 30_000 + Math.floor(random() * 2_767))],
    [
      'ports all over',
      2,
      (random: () => number) => portKey(random() < 0.5 ? 'TCP' : 'UDP', Math.floor(random() * 65_536)),
    ],
    ['few destinations', 3, (random: () => number) => portKey('TCP', Math.floor(random() * 3) * 7)],
  ] as const) {
    test(`is the same whatever the way to it: ${what}`, () => {
      const random = seededRandom(seed);
      const held = new Map<number, Item>();
      let tree = emptyTree<Item>();
      let most = 0;
      for (let step = 0; step < 4_000; step++) {
        // Grows to some hundreds and falls back to nothing, several times.
        const growing = Math.floor(step / 700) % 2 === 0;
        const old = [...held.values()][Math.floor(random() * held.size)];
        if (old !== undefined && random() < (growing ? 0.1 : 0.9)) {
          held.delete(old.id);
          tree = withoutItem(tree, old, LAYOUT);
        } else {
          const fresh = item(step, keys(random), 1 + Math.floor(random() * 3));
          held.set(fresh.id, fresh);
          tree = withItem(tree, fresh, LAYOUT);
        }
        most = Math.max(most, held.size);
        if (step % 37 !== 0) continue;
        assert.deepEqual(tree, treeOf([...held.values()].sort(byId), MAX_LEAF));
        assertSound(tree);
      }
      assert.ok(most > 300 && held.size < most);
    });
  }
});

function assertSound(tree: RuleTree<Item>): void {
  const items = [...itemsOf(tree)];
  assert.equal(
    tree.size,
    items.reduce((sum, { specs }) => sum + specs.length, 0),
  );
  if (tree.kind === 'leaf') {
    assert.ok(tree.size <= MAX_LEAF || new Set(items.map(({ key }) => key)).size === 1);
    return;
  }
  assert.ok(tree.size > MAX_LEAF && tree.children.length > 1);
  for (const { step, tree: child } of tree.children) {
    for (const { key } of itemsOf(child)) assert.ok(key.startsWith(tree.prefix + step));
    assertSound(child);
  }
}

function* nodesOf(tree: RuleTree<Item>): Generator<RuleTree<Item>> {
  yield tree;
  if (tree.kind === 'branch') for (const child of tree.children) yield* nodesOf(child.tree);
}

describe('the key of a destination', () => {
  test('is its address, protocol and port', () => {
    assert.equal(addressKey(address('10.96.0.1')) + portKey('TCP', 80), '0a600001t0050');
    assert.equal(addressKey(address('fd00:96::1')), 'fd000096000000000000000000000001');
    assert.equal(addressKey(address('::ffff:10.96.0.1')), '00000000000000000000ffff0a600001');
    assert.equal(portKey('UDP', 65_535), 'uffff');
  });

  test('has prefixes that rules can match', () => {
    for (const [prefix, match] of [
      ['0', '-d 0.0.0.0/4'],
      ['0a6', '-d 10.96.0.0/12'],
      ['0a600001', '-d 10.96.0.1/32'],
      ['0a600001u', '-d 10.96.0.1/32 -p udp'],
      ['0a600001t00', '-d 10.96.0.1/32 -p tcp -m tcp --dport 0:255'],
      ['t', '-p tcp'],
      ['u7', '-p udp -m udp --dport 28672:32767'],
      ['t7530', '-p tcp -m tcp --dport 30000'],
    ] as const) {
      assert.equal(prefixMatch(prefix, 'IPv4'), match);
    }
    assert.equal(prefixMatch('fd0000960', 'IPv6'), '-d fd00:96::/36');
    assert.equal(prefixMatch('fd000096000000000000000000000001t', 'IPv6'), '-d fd00:96::1/128 -p tcp');
  });
});

describe('the chain of a bucket', () => {
  test("has a name made from its content that fits into the kernel's limit", () => {
    assert.equal(bucketChain('PC', '0a600'), 'KUBE-USP-PC-0a600');
    assert.equal(bucketChain('NH', 't7'), 'KUBE-USP-NH-t7');
    for (const tree of TREE_NAMES) {
      const full = `${'f'.repeat(32)}t0050`;
      const names = Array.from(full, (_, index) => bucketChain(tree, full.slice(0, index + 1)));
      assert.equal(new Set(names).size, full.length);
      for (const name of names) assert.match(name, /^KUBE-USP-[\w-]{3,19}$/);
    }
  });

  test('differs from chains of other programs', () => {
    const keys = ['0a600001t0050', 'fd000096000000000000000000000001u0035', 't7530', 'u0035'];
    for (const key of keys) {
      for (let length = 1; length <= key.length; length++) {
        const name = bucketChain('PB', key.slice(0, length));
        assert.ok(isOurs('nat', name), name);
      }
    }
    for (const name of ['KUBE-USP-SCP-abcdefghijklm-_', 'KUBE-USP-PH-0a600001z', 'KUBE-USP-PC-s']) {
      assert.ok(isOurs('nat', name), `${name}, of version 0.1.0`);
    }
    for (const name of [
      'KUBE-USP-PC-',
      'KUBE-USP-PC-0a600g',
      'KUBE-USP-PC-0A60',
      'KUBE-USP-XX-0a60',
      'KUBE-USP-PC-0a60 x',
      'KUBE-USP-PC-0a60\n',
      'KUBE-USP-PC-habc',
      'KUBE-USP-PC-0a6t0',
      'XKUBE-USP-PC-0a60',
      'KUBE-SERVICES',
      'KUBE-PORTALS-CONTAINER-2',
      'PREROUTING',
    ]) {
      assert.equal(isOurs('nat', name), false, name);
    }
    assert.equal(isOurs('filter', PORTALS_CONTAINER), false, 'only where it belongs');
  });
});
