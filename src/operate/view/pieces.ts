import type { Clock } from '../../util/clock.ts';

/** Of one piece: few enough that other work of the event loop waits no longer than {@link SLICE_MS} and a row. */
const MAX_ROWS = 100;
const MAX_CHARACTERS = 64 * 1024;
const SLICE_MS = 2;

/**
 * Rows as text, some at a time, made as they are asked for. Ten thousand Services with all their endpoints are many
 * megabytes; making that text at once would hold up this thread for too long. Give way to it between two pieces.
 */
export function* inPieces<Row>(
  rows: Iterable<Row>,
  clock: Clock,
  textOf: (row: Row) => string,
): Generator<readonly string[]> {
  let texts: string[] = [];
  let characters = 0;
  let endMs = clock.now() + SLICE_MS;
  for (const row of rows) {
    const text = textOf(row);
    texts.push(text);
    characters += text.length;
    if (texts.length < MAX_ROWS && characters < MAX_CHARACTERS && clock.now() < endMs) continue;
    yield texts;
    texts = [];
    characters = 0;
    endMs = clock.now() + SLICE_MS;
  }
  if (texts.length > 0) yield texts;
}
