import { setImmediate } from 'node:timers/promises';

/** A piece takes well under a millisecond. */
const LOOKS_PER_PIECE = 256;

/** What is not `undefined`, in pieces, with a turn of the event loop between two of them. */
export async function* inPieces<Each>(all: Iterable<Each | undefined>): AsyncGenerator<readonly Each[], void> {
  let piece: Each[] = [];
  let looks = 0;
  for (const each of all) {
    if (each !== undefined) piece.push(each);
    if (++looks < LOOKS_PER_PIECE) continue;
    if (piece.length > 0) yield piece;
    piece = [];
    looks = 0;
    await setImmediate();
  }
  if (piece.length > 0) yield piece;
}
