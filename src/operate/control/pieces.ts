import type { Clock } from '../../util/clock.ts';

/** Of one piece: few enough for the loop's other work to wait no longer than {@link SLICE_MS} and a row. */
const MAX_ROWS = 100;
const MAX_CHARACTERS = 64 * 1024;
const SLICE_MS = 2;

/**
 * Rows as the JSON of arrays, none of them large, made as they are asked for: ten thousand Services with all their
 * endpoints are many megabytes, and to make that text at once takes longer than anything else on this thread should wait.
 */
export function* inPieces(rows: Iterable<unknown>, clock: Clock): Generator<string> {
  let texts: string[] = [];
  let characters = 0;
  let endMs = clock.now() + SLICE_MS;
  for (const row of rows) {
    const text = JSON.stringify(row);
    texts.push(text);
    characters += text.length;
    if (texts.length < MAX_ROWS && characters < MAX_CHARACTERS && clock.now() < endMs) continue;
    yield `[${texts.join(',')}]`;
    texts = [];
    characters = 0;
    endMs = clock.now() + SLICE_MS;
  }
  if (texts.length > 0) yield `[${texts.join(',')}]`;
}
