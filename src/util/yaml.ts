import { isMap, isScalar, isSeq, LineCounter, type ParsedNode, parseAllDocuments } from 'yaml';

export interface ParsedDocument {
  /** Lists, objects, strings, numbers, booleans, null. Aliases make parts of it shared, or contain themselves. */
  readonly value: unknown;
  /**
   * The line of the text, from 1, on which the part of the value is written that a path of keys and indexes leads to.
   * A part that is missing has the line of the last step that is there. Holds on to the text and its syntax tree.
   */
  readonly lineOf: (path: readonly string[]) => number;
}

/** The text is neither YAML nor JSON, or is not safe to read. The message may quote the text. */
export class DocumentError extends Error {
  override readonly name = 'DocumentError';
  /** From 1, in the text that was given. */
  readonly line: number;
  /** Of the parser, as `DUPLICATE_KEY`: says what is wrong without quoting the text. */
  readonly code: string;

  constructor(message: string, { line, code }: { readonly line: number; readonly code: string }) {
    super(message);
    this.line = line;
    this.code = code;
  }
}

/** The parser blocks the event loop and needs about a hundred times the size of the text in memory. */
const MAX_CHARACTERS = 4 * 1024 * 1024;

/** Uses of an anchor, times the aliases inside of it: a few lines of aliases can stand for billions of values. */
const MAX_ALIASES = 10_000;

/** Blank space, the marker that begins a document, or both; before an object. */
const JSON_BEGIN = /^[ \t\r\n]*(?:---[ \t\r\n]+)?(?=\{)/;

/** In place of what the parser says. */
const MESSAGES: ReadonlyMap<string, string> = new Map([
  ['DUPLICATE_KEY', 'a key is there twice'],
  ['RESOURCE_EXHAUSTION', 'it is nested too deeply'],
]);

/**
 * The documents of a YAML or JSON text; none if it holds only comments. A key that is there twice is an error, in JSON
 * too. Throws {@link DocumentError}.
 */
export function parseDocuments(text: string): ParsedDocument[] {
  if (text.length > MAX_CHARACTERS) {
    const message = `a YAML document is larger than ${MAX_CHARACTERS / 1024 / 1024} MiB; divide it by "---" or make it JSON`;
    throw new DocumentError(message, { line: 1, code: 'TOO_LARGE' });
  }
  const lines = new LineCounter();
  const lineAt = (offset: number) => Math.max(1, lines.linePos(offset).line);
  const documents = parseAllDocuments<ParsedNode>(text, {
    lineCounter: lines,
    merge: true,
    stringKeys: true,
    // Only what JSON can say: no dates, sets or binaries.
    resolveKnownTags: false,
    prettyErrors: false,
    logLevel: 'silent',
  });
  return documents.flatMap((document) => {
    const { contents, errors } = document;
    const [error] = errors;
    if (error !== undefined) {
      const message = MESSAGES.get(error.code) ?? error.message.slice(0, 200);
      throw new DocumentError(message, { line: lineAt(error.pos[0]), code: error.code });
    }
    if (contents === null) return [];
    const lineOf = (path: readonly string[]) => lineAt(offsetOf(contents, path));
    try {
      return [{ value: document.toJS({ maxAliasCount: MAX_ALIASES }), lineOf }];
    } catch (error) {
      // Aliases without an anchor, merges of something else than objects, and too many aliases.
      throw new DocumentError((error as Error).message.slice(0, 200), { line: lineOf([]), code: 'BAD_ALIAS' });
    }
  });
}

/**
 * As {@link parseDocuments}, but reads JSON twenty times as fast. The price: of a key that is there twice in JSON, the
 * last counts. Lines in JSON of more than 4 MiB are those of the whole document.
 */
export function parseLargeDocuments(text: string): ParsedDocument[] {
  const begin = JSON_BEGIN.exec(text)?.[0].length;
  if (begin === undefined) return parseDocuments(text);
  let value: unknown;
  try {
    value = JSON.parse(text.slice(begin));
  } catch {
    // YAML in flow style begins like that too, and the YAML parser knows the line of a mistake in JSON.
    return parseDocuments(text);
  }
  const firstLine = text.slice(0, text.indexOf('{')).split('\n').length;
  let parsed: ParsedDocument | undefined;
  const lineOf = (path: readonly string[]) => {
    if (path.length === 0 || text.length > MAX_CHARACTERS) return firstLine;
    try {
      parsed ??= parseDocuments(text)[0];
    } catch (error) {
      if (!(error instanceof DocumentError)) throw error;
    }
    return parsed?.lineOf(path) ?? firstLine;
  };
  return [{ value, lineOf }];
}

/** Where the part begins: at its key, if it has one. What an alias or a merge brings is written elsewhere. */
function offsetOf(root: ParsedNode, path: readonly string[]): number {
  let node: ParsedNode | null = root;
  let offset = root.range[0];
  for (const step of path) {
    const [key, value]: readonly [ParsedNode?, (ParsedNode | null)?] = childOf(node, step);
    if (key === undefined) break;
    offset = key.range[0];
    node = value ?? null;
  }
  return offset;
}

function childOf(node: ParsedNode | null, step: string): readonly [key?: ParsedNode, value?: ParsedNode | null] {
  if (isMap<ParsedNode, ParsedNode | null>(node)) {
    const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === step);
    return pair === undefined ? [] : [pair.key, pair.value];
  }
  const item = isSeq<ParsedNode>(node) ? node.items[Number(step)] : undefined;
  return item === undefined ? [] : [item, item];
}
