import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';

/** Far above what anybody writes by hand; the parser needs about a hundred times as much memory. */
const MAX_BYTES = 1024 * 1024;

/**
 * The text of a file of moderate size. Throws an error whose message is a clause for the user. Anything but a regular
 * file is refused unread: a pipe would keep us waiting.
 */
export function readRegularFile(path: string): string {
  let descriptor: number;
  try {
    // Without blocking, for opening a pipe waits, too.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new Error(`cannot be read (${(error as NodeJS.ErrnoException).code}); check the path and its permissions`);
  }
  try {
    const { size } = checked(descriptor);
    if (size > MAX_BYTES) throw new Error(`has ${size} bytes; at most ${MAX_BYTES} are read`);
    return readFileSync(descriptor, 'utf8');
  } finally {
    closeSync(descriptor);
  }
}

function checked(descriptor: number) {
  const stats = fstatSync(descriptor);
  if (!stats.isFile()) throw new Error('is no regular file');
  return stats;
}
