import type { Socket } from 'node:net';

/**
 * Copies one direction of a connection, whole and in order, and passes its end on after the last byte. No more than the
 * two sockets' high-water marks (64 KiB each) are held in memory: `from` is not read while `to` has not drained.
 *
 * While it is not read, its reset goes unseen, for Node takes a socket that it does not read off the poll set: it is seen
 * when `to` drains or fails. So does its end: `onStall` is called when reading pauses. Errors are the caller's concern.
 */
export function copy(
  from: Socket,
  to: Socket,
  { onBytes, onStall }: { readonly onBytes: (count: number) => void; readonly onStall: () => void },
): void {
  from.on('data', (chunk: Buffer) => {
    onBytes(chunk.length);
    if (to.write(chunk)) return;
    from.pause();
    onStall();
  });
  to.on('drain', () => from.resume());
  if (from.readableEnded) to.end();
  else from.once('end', () => to.end());
}
