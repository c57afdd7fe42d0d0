import {
  CORE_SCHEMA,
  constructFromEvents,
  defineScalarTag,
  EVENT_ID,
  type Event,
  getScalarValue,
  mergeTag,
  parseEvents,
  YAMLException,
} from 'js-yaml';
import { type Found, FoundError } from './found.ts';

export interface ParsedDocument {
  /** Lists, objects, strings, numbers, booleans, null. Aliases make parts of it shared, or contain themselves. */
  readonly value: unknown;
  /**
   * The line of the text, from 1, on which the part of the value is written that a path of keys and indexes leads to.
   * A part that is missing has the line of the last step that is there. Holds on to the text and what it consists of.
   */
  readonly lineOf: (path: readonly string[]) => number;
}

/** The text is neither YAML nor JSON, or is not safe to read. The message may quote the text. */
export class DocumentError extends FoundError {
  override readonly name = 'DocumentError';
  /** From 1, in the text that was given. */
  readonly line: number;

  constructor(why: Found, line: number) {
    super(why);
    this.line = line;
  }
}

/** The parser blocks the event loop and needs about twenty times the size of the text in memory. */
const MAX_CHARACTERS = 4 * 1024 * 1024;

/** Values that aliases stand for, all together: a few lines of aliases can stand for billions. */
const MAX_ALIASED = 100_000;

/** Blank space, the marker that begins a document, or both; before an object. */
const JSON_BEGIN = /^[ \t\r\n]*(?:---[ \t\r\n]+)?(?=\{)/;

/**
 * A text of its own. V8 lets a part of a text share the memory of the whole, so one name would keep a file in memory.
 * It copies what is shorter than 13 characters anyway.
 */
const ownText = defineScalarTag<string>('tag:yaml.org,2002:str', {
  resolve: (source) => (source.length < 13 ? source : JSON.parse(JSON.stringify(source))),
  identify: () => false,
});

const SCHEMA = CORE_SCHEMA.withTags(mergeTag, ownText);

/** In place of what the parser says. */
const MESSAGES: ReadonlyMap<string, string> = new Map([
  ['duplicated mapping key', 'a key is there twice'],
  ['nesting exceeded maxDepth (100)', 'it is nested too deeply'],
  ['object-based map does not support complex keys', 'a key is a list or an object; keys must be strings'],
  [
    'cannot merge mappings; the provided source object is unacceptable',
    '"<<" must stand for an object or a list of them',
  ],
]);

/**
 * The documents of a YAML or JSON text; none if it holds only comments. A key that is there twice is an error, in JSON
 * too. Throws {@link DocumentError}.
 */
export function parseDocuments(text: string): ParsedDocument[] {
  if (text.length > MAX_CHARACTERS) {
    const limit = `${MAX_CHARACTERS / 1024 / 1024} MiB`;
    const found = `a YAML document is larger than ${limit}`;
    throw new DocumentError({ found, advice: 'divide it by "---" or make it JSON' }, 1);
  }
  try {
    const events = parseEvents(text, {});
    refuseBombs(text, events);
    const values = constructFromEvents(events, { source: text, schema: SCHEMA });
    const roots = events.flatMap(({ type }, index) => (type === EVENT_ID.DOCUMENT ? [index + 1] : []));
    const lineAt = lineCounter(text, 0, 1);
    return values.map((value, index) => {
      const root = roots[index] as number;
      const line = lineAt(offsetOf(events[root]));
      let parts: Part | undefined;
      const lineOf = (path: readonly string[]) => {
        if (path.length > 0) parts ??= readParts(text, events, root, line);
        return lineIn(parts ?? { line }, path);
      };
      return { value, lineOf };
    });
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error;
    const { reason, mark } = error;
    throw new DocumentError({ found: MESSAGES.get(reason) ?? reason.slice(0, 200) }, (mark?.line ?? 0) + 1);
  }
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

/** Throws where aliases stand for too much. */
function refuseBombs(text: string, events: readonly Event[]): void {
  /** By the name of an anchor, how many values it stands for. */
  const sizes = new Map<string, number>();
  const open: { readonly event: Event; readonly before: number }[] = [];
  let values = 0;
  let aliased = 0;
  const keep = (event: Event, size: number) => {
    if ('anchorStart' in event && event.anchorStart >= 0) sizes.set(anchorOf(text, event), size);
  };
  for (const event of events) {
    if (event.type === EVENT_ID.POP) {
      const { event: begin, before } = open.pop() as { event: Event; before: number };
      keep(begin, values - before);
    } else if (event.type === EVENT_ID.ALIAS) {
      const size = sizes.get(anchorOf(text, event)) ?? 1;
      values += size;
      aliased += size;
      if (aliased > MAX_ALIASED) {
        YAMLException.throwAt(text, event.anchorStart, `aliases stand for more than ${MAX_ALIASED} values`);
      }
    } else {
      if (event.type === EVENT_ID.SCALAR) keep(event, 1);
      else open.push({ event, before: values });
      values += 1;
    }
  }
}

function anchorOf(
  text: string,
  { anchorStart, anchorEnd }: { readonly anchorStart: number; readonly anchorEnd: number },
) {
  return text.slice(anchorStart, anchorEnd);
}

/** Begins at its key, if it has one. What an alias or a merge brings is written elsewhere. */
interface Part {
  readonly line: number;
  /** By key or index. */
  readonly parts?: ReadonlyMap<string, Part>;
}

function lineIn(root: Part, path: readonly string[]): number {
  let part = root;
  for (const step of path) {
    const next = part.parts?.get(step);
    if (next === undefined) break;
    part = next;
  }
  return part.line;
}

/** The value that begins with the event at `root`, on this line. */
function readParts(text: string, events: readonly Event[], root: number, rootLine: number): Part {
  const lineAt = lineCounter(text, offsetOf(events[root]), rootLine);
  let at = root;
  const read = (): Part => {
    const event = events[at++];
    const line = lineAt(offsetOf(event));
    if (event?.type !== EVENT_ID.SEQUENCE && event?.type !== EVENT_ID.MAPPING) return { line };
    const parts = new Map<string, Part>();
    while (events[at]?.type !== EVENT_ID.POP) {
      const key = events[at];
      const part = read();
      if (event.type === EVENT_ID.SEQUENCE) parts.set(String(parts.size), part);
      else parts.set(key?.type === EVENT_ID.SCALAR ? getScalarValue(text, key) : '', { ...read(), line: part.line });
    }
    at += 1;
    return { line, parts };
  };
  return read();
}

/** Of something that is not there, before everything. */
function offsetOf(event: Event | undefined): number {
  if (event === undefined) return -1;
  if ('start' in event) return event.start;
  return 'valueStart' in event ? event.valueStart : 'anchorStart' in event ? event.anchorStart : -1;
}

/** To be asked in ascending order; an offset before the last one has its line. */
function lineCounter(text: string, offset: number, line: number): (offset: number) => number {
  let end = text.indexOf('\n', offset);
  let current = line;
  return (asked) => {
    for (; end >= 0 && end < asked; end = text.indexOf('\n', end + 1)) current += 1;
    return current;
  };
}
