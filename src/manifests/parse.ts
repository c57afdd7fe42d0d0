import {
  type Alias,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  type Node,
  type ParsedNode,
  parseAllDocuments,
  type YAMLError,
  type YAMLMap,
} from 'yaml';
import { JsonOffsets } from './json-offsets.ts';
import { Lines } from './lines.ts';
import { startOf, yamlOffset } from './yaml-offset.ts';

export interface ParsedDocument {
  /** Lists, objects without a prototype, strings, numbers, booleans, null. Aliases make parts of it shared. */
  readonly value: unknown;
  /**
   * In which line of the text, from 1, that part of the value is written which a path of keys and indexes leads to, or
   * the last on the way that is there. Keeps the text and its syntax tree for as long as it is held.
   */
  readonly lineOf: (path: readonly string[]) => number;
}

/** The text is no YAML and no JSON, or not of a kind that is safe to read. */
export class ManifestSyntaxError extends Error {
  override readonly name = 'ManifestSyntaxError';
  /** From 1, in the text that was given. */
  readonly line: number;

  constructor(message: string, line: number) {
    super(message);
    this.line = line;
  }
}

/**
 * The parser holds the event loop and needs about a hundred times the text's size in memory. Files may be larger:
 * this is for one document of them.
 */
const MAX_YAML_CHARACTERS = 4 * 1024 * 1024;

/** How many values aliases may add to a document: an alias bomb is a few lines that stand for billions. */
const MAX_ALIASED_VALUES = 100_000;

const TOO_DEEP = 'it is nested too deeply';

/**
 * The documents in a piece of a manifest file; usually one, none if there are only comments. JSON is parsed as such
 * because that is twenty times as fast. Throws {@link ManifestSyntaxError}.
 */
export function parseDocuments(text: string): ParsedDocument[] {
  if (/^\s*\{/.test(text)) {
    try {
      const value = JSON.parse(text);
      return [{ value, lineOf: linesOfJson(text) }];
    } catch {
      // YAML in flow style begins like that too, and for broken JSON the YAML parser knows the line.
    }
  }
  if (text.length > MAX_YAML_CHARACTERS) {
    const limit = `${MAX_YAML_CHARACTERS / 1024 / 1024} MiB`;
    throw new ManifestSyntaxError(`a YAML document is larger than ${limit}; divide it by "---" or make it JSON`, 1);
  }
  try {
    return parseYaml(text);
  } catch (error) {
    if (error instanceof RangeError) throw new ManifestSyntaxError(TOO_DEEP, 1);
    throw error;
  }
}

function linesOfJson(text: string): ParsedDocument['lineOf'] {
  const lines = new Lines(text);
  const offsets = new JsonOffsets(text);
  return (path) => lines.at(offsets.of(path));
}

function parseYaml(text: string): ParsedDocument[] {
  const lines = new Lines(text);
  const documents = parseAllDocuments<ParsedNode>(text, {
    stringKeys: true,
    // The parser compares every key with every other one; toPlain() looks for duplicates in linear time.
    uniqueKeys: false,
    // Only what JSON can say: no dates, sets or binaries.
    resolveKnownTags: false,
    prettyErrors: false,
    logLevel: 'silent',
  });
  // An object with `empty` means that there is no document.
  if ('empty' in documents) return [];

  return documents.flatMap(({ contents, errors: [error] }) => {
    if (error !== undefined) throw new ManifestSyntaxError(messageOf(error), lines.at(error.pos[0]));
    if (contents === null) return [];
    try {
      const value = new PlainValues().convert(contents);
      return [{ value, lineOf: (path) => lines.at(yamlOffset(contents, path)) }];
    } catch (thrown) {
      if (thrown instanceof NodeError) throw new ManifestSyntaxError(thrown.message, lines.at(thrown.offset));
      throw thrown;
    }
  });
}

/** Some of the parser's messages quote the text, of whatever length. */
function messageOf({ code, message }: YAMLError): string {
  return code === 'RESOURCE_EXHAUSTION' ? TOO_DEEP : message.slice(0, 200);
}

class NodeError extends Error {
  readonly offset: number;

  constructor(message: string, node: Pick<Node, 'range'>) {
    super(message);
    this.offset = startOf(node);
  }
}

interface Anchor {
  /** `undefined` while the anchored value is still being converted. */
  readonly value: unknown;
  /** How many values there are in it, those behind its own aliases included. */
  readonly size: number;
}

/**
 * A syntax tree as plain values. The parser's own conversion searches all anchors for every alias and lets `<<` and
 * duplicate keys cost the square of their number.
 */
class PlainValues {
  readonly #anchors = new Map<string, Anchor | undefined>();
  #size = 0;
  #aliased = 0;

  convert(node: ParsedNode | null): unknown {
    this.#size += 1;
    if (node === null) return null;
    if (isAlias(node)) return this.#resolve(node);
    if (node.anchor === undefined) return this.#convertContent(node);

    this.#anchors.set(node.anchor, undefined);
    const before = this.#size;
    const value = this.#convertContent(node);
    this.#anchors.set(node.anchor, { value, size: this.#size - before + 1 });
    return value;
  }

  #convertContent(node: ParsedNode): unknown {
    if (isSeq<ParsedNode>(node)) return node.items.map((item) => this.convert(item));
    if (isMap<ParsedNode, ParsedNode | null>(node)) return this.#convertMap(node);
    return isScalar(node) ? node.value : null;
  }

  #convertMap(map: YAMLMap<ParsedNode, ParsedNode | null>): Record<string, unknown> {
    // Without a prototype `__proto__` is a key like any other.
    const object: Record<string, unknown> = Object.create(null);
    const merged: ParsedNode[] = [];
    for (const { key, value } of map.items) {
      if (!isScalar(key)) throw new NodeError('a key is not a string', key);
      const name = String(key.value);
      if (name === '<<' && key.type === 'PLAIN' && value !== null) {
        merged.push(value);
        continue;
      }
      if (name in object) throw new NodeError(`the key ${JSON.stringify(name.slice(0, 100))} is there twice`, key);
      object[name] = this.convert(value);
    }
    for (const node of merged) this.#merge(node, object);
    return object;
  }

  /** `<<: *other` and `<<: [*first, *second]`: adds what is not there yet (yaml.org/type/merge.html). */
  #merge(node: ParsedNode, target: Record<string, unknown>): void {
    const value = this.convert(node);
    for (const source of Array.isArray(value) ? value : [value]) {
      if (typeof source !== 'object' || source === null || Array.isArray(source)) {
        throw new NodeError('"<<" needs an object or a list of objects', node);
      }
      for (const [name, item] of Object.entries(source)) if (!(name in target)) target[name] = item;
    }
  }

  #resolve(alias: Pick<Alias, 'source' | 'range'>): unknown {
    const anchor = this.#anchors.get(alias.source);
    if (anchor === undefined) {
      const why = this.#anchors.has(alias.source) ? 'stands inside what it stands for' : 'has no anchor before it';
      throw new NodeError(`the alias *${alias.source.slice(0, 100)} ${why}`, alias);
    }
    this.#size += anchor.size;
    this.#aliased += anchor.size;
    if (this.#aliased > MAX_ALIASED_VALUES) {
      throw new NodeError(`its aliases stand for more than ${MAX_ALIASED_VALUES} values`, alias);
    }
    return anchor.value;
  }
}
