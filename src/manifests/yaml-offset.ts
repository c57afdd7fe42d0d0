import { isMap, isScalar, isSeq, type Node, type Pair, type ParsedNode } from 'yaml';

/**
 * Where in its text the part of a syntax tree begins that a path of keys and indexes leads to: at its key, if it has one.
 * Else the last on the way that is written out: what is behind an alias or `<<` is written elsewhere.
 */
export function yamlOffset(root: ParsedNode, path: readonly string[]): number {
  let node: ParsedNode | null = root;
  let offset = startOf(root);
  for (const step of path) {
    if (isMap<ParsedNode, ParsedNode | null>(node)) {
      const pair: Pair<ParsedNode, ParsedNode | null> | undefined = node.items.find(
        ({ key }) => isScalar(key) && String(key.value) === step,
      );
      if (pair === undefined) break;
      offset = startOf(pair.key);
      node = pair.value;
    } else if (isSeq<ParsedNode>(node)) {
      const item: ParsedNode | undefined = node.items[Number(step)];
      if (item === undefined) break;
      offset = startOf(item);
      node = item;
    } else break;
  }
  return offset;
}

export function startOf({ range }: Pick<Node, 'range'>): number {
  return range?.[0] ?? 0;
}
