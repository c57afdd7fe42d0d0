import { type Address, addressBytes, type IpFamily, parseAddress } from '../../model/address.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { ipText } from '../../util/ip-bytes.ts';

export interface TreeItem {
  readonly key: DestinationKey;
  readonly specs: { readonly length: number };
}

export interface Layout<T> {
  /** Of items in a leaf; 0 only for the same item. */
  readonly order: (a: T, b: T) => number;
  /** The most rules in a leaf; a leaf with one destination may have more. */
  readonly maxLeaf: number;
}

interface Leaf<T> {
  readonly kind: 'leaf';
  readonly size: number;
  readonly items: readonly T[];
}

interface Branch<T> {
  readonly kind: 'branch';
  readonly size: number;
  /** All keys begin with it; the next character selects the child. */
  readonly prefix: DestinationKey;
  /** At least two, sorted by that character, `step`. */
  readonly children: readonly { readonly step: string; readonly tree: RuleTree<T> }[];
}

/**
 * A radix tree with a limited number of rules in a leaf; `size` counts the rules below a node. Immutable: a changed
 * tree shares all equal parts with the one before, so comparing them is cheap. The shape depends on the items alone,
 * not on the order of insertion, so a restarted program finds its rules unchanged.
 */
export type RuleTree<T> = Leaf<T> | Branch<T>;

export function emptyTree<T>(): RuleTree<T> {
  return { kind: 'leaf', size: 0, items: [] };
}

/** `items` must be in order. */
export function treeOf<T extends TreeItem>(items: readonly T[], maxLeaf: number): RuleTree<T> {
  const size = items.reduce((sum, item) => sum + item.specs.length, 0);
  const prefix = size <= maxLeaf ? undefined : commonPrefix(items);
  // No jump can separate items of the same destination.
  if (prefix === undefined || prefix === items[0]?.key) return { kind: 'leaf', size, items };
  const groups = Map.groupBy(items, (item) => item.key.charAt(prefix.length));
  const children = [...groups].map(([step, group]) => ({ step, tree: treeOf(group, maxLeaf) }));
  return { kind: 'branch', size, prefix, children: children.sort(byStep) };
}

export function withItem<T extends TreeItem>(tree: RuleTree<T>, item: T, layout: Layout<T>): RuleTree<T> {
  const { order, maxLeaf } = layout;
  const size = tree.size + item.specs.length;
  if (tree.kind === 'leaf') {
    const items = inserted(tree.items, item, order);
    return size <= maxLeaf ? { kind: 'leaf', size, items } : treeOf(items, maxLeaf);
  }
  if (!item.key.startsWith(tree.prefix)) {
    const prefix = shared(tree.prefix, item.key);
    const children = [
      { step: tree.prefix.charAt(prefix.length), tree },
      { step: item.key.charAt(prefix.length), tree: treeOf([item], maxLeaf) },
    ];
    return { kind: 'branch', size, prefix, children: children.sort(byStep) };
  }
  const { at, step, child } = childFor(tree, item.key);
  const children =
    child === undefined
      ? [...tree.children, { step, tree: treeOf([item], maxLeaf) }].sort(byStep)
      : tree.children.with(at, { step, tree: withItem(child, item, layout) });
  return { kind: 'branch', size, prefix: tree.prefix, children };
}

/** Throws when no branch leads to `item`. */
export function withoutItem<T extends TreeItem>(tree: RuleTree<T>, item: T, layout: Layout<T>): RuleTree<T> {
  const { order, maxLeaf } = layout;
  if (tree.kind === 'leaf') {
    return treeOf(
      tree.items.filter((other) => order(item, other) !== 0),
      maxLeaf,
    );
  }
  const size = tree.size - item.specs.length;
  const { at, step, child } = childFor(tree, item.key);
  if (child === undefined) throw new Error(`No item with the key ${item.key} is in the tree`);
  const rest = withoutItem(child, item, layout);
  const isGone = rest.kind === 'leaf' && rest.items.length === 0;
  const children = isGone ? tree.children.toSpliced(at, 1) : tree.children.with(at, { step, tree: rest });
  const [only, another] = children;
  if (only !== undefined && another === undefined) return only.tree;
  const branch: Branch<T> = { kind: 'branch', size, prefix: tree.prefix, children };
  return size <= maxLeaf ? treeOf([...itemsOf(branch)].sort(order), maxLeaf) : branch;
}

export function* itemsOf<T>(tree: RuleTree<T>): Generator<T> {
  if (tree.kind === 'leaf') yield* tree.items;
  else for (const child of tree.children) yield* itemsOf(child.tree);
}

function childFor<T>({ prefix, children }: Branch<T>, key: DestinationKey) {
  const step = key.charAt(prefix.length);
  const at = children.findIndex((child) => child.step === step);
  return { step, at, child: children[at]?.tree };
}

function byStep(a: { readonly step: string }, b: { readonly step: string }): number {
  return a.step < b.step ? -1 : 1;
}

function inserted<T>(items: readonly T[], item: T, order: Layout<T>['order']): readonly T[] {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (order(items[middle] as T, item) < 0) low = middle + 1;
    else high = middle;
  }
  return items.toSpliced(low, 0, item);
}

function commonPrefix(items: readonly TreeItem[]): DestinationKey {
  return items.reduce((prefix, item) => shared(prefix, item.key), items[0]?.key ?? '');
}

function shared(a: string, b: string): string {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return a.slice(0, length);
}

/**
 * The address in hexadecimal (absent for NodePorts), `t` or `u` for the protocol, the port in hexadecimal:
 * "0a600001t0050" is 10.96.0.1:80/TCP, "t7580" the NodePort 30080/TCP. One rule can match all that have a prefix.
 */
export type DestinationKey = string;

const PROTOCOLS = { TCP: 't', UDP: 'u' } as const;

export function portKey(protocol: ProxiedProtocol, port: number): DestinationKey {
  return PROTOCOLS[protocol] + hex(port, 4);
}

export function addressKey(address: Address): DestinationKey {
  return addressBytes(address)
    .map((byte) => hex(byte, 2))
    .join('');
}

/** The matches for all destinations below a prefix, as `iptables-save` prints them. */
export function prefixMatch(prefix: DestinationKey, family: IpFamily): string {
  const [, address = '', protocol, port = ''] = /^([0-9a-f]*)([tu]?)([0-9a-f]*)$/.exec(prefix) ?? [];
  const matches: string[] = [];
  if (address !== '') matches.push(`-d ${networkOf(address, family)}/${address.length * 4}`);
  if (protocol !== '') {
    const proto = protocol === PROTOCOLS.TCP ? 'tcp' : 'udp';
    matches.push(`-p ${proto}`);
    if (port !== '') matches.push(`-m ${proto} --dport ${portRange(port)}`);
  }
  return matches.join(' ');
}

function portRange(prefix: string): string {
  const first = Number.parseInt(prefix.padEnd(4, '0'), 16);
  const last = Number.parseInt(prefix.padEnd(4, 'f'), 16);
  return first === last ? String(first) : `${first}:${last}`;
}

function networkOf(prefix: string, family: IpFamily): Address {
  const bytes = Buffer.from(prefix.padEnd(family === 'IPv4' ? 8 : 32, '0'), 'hex');
  const network = parseAddress(ipText(bytes));
  if (network === undefined) throw new Error(`The prefix "${prefix}" is no ${family} network`);
  return network;
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}
