/** A piece of a manifest file that can be parsed by itself. */
export interface Chunk {
  /** Where it begins in the file, from 1. */
  readonly line: number;
  readonly text: string;
}

/** A document marker is one at the start of any line, even inside a block scalar (YAML 1.2.2 §9.1.2). */
const MARKER = /(?<![^\n])---(?=[ \t\r\n]|$)/g;

/** More than comments, directives and blank lines. */
const HAS_CONTENT = /^[ \t]*[^\s#%]/m;

/**
 * Cuts a file at its document markers. One by one, so that a file may be large without its syntax tree being so, and
 * so that an edit of one document leaves the others known by their text.
 */
export function* splitDocuments(text: string): Generator<Chunk> {
  let start = 0;
  let line = 1;
  for (const { index } of text.matchAll(MARKER)) {
    const piece = text.slice(start, index);
    // Directives, and comments before the first marker, belong to the document that the marker begins.
    if (!HAS_CONTENT.test(piece)) continue;
    yield { line, text: piece };
    line += countLines(piece);
    start = index;
  }
  yield { line, text: text.slice(start) };
}

function countLines(text: string): number {
  let lines = 0;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) lines += 1;
  return lines;
}
