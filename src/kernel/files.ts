import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Clock } from '../util/clock.ts';

/** Far above any file written by hand; the parser needs about a hundred times as much memory. */
const MAX_BYTES = 1024 * 1024;

/**
 * The text of a file of moderate size. Throws an error whose message is a clause for the user. Refuses anything but a
 * regular file unread, because reading a pipe would block.
 */
export function readRegularFile(path: string): string {
  let descriptor: number;
  try {
    // Opening a pipe would block, too.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new Error(`cannot be read (${(error as NodeJS.ErrnoException).code}); check the path and its permissions`);
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile()) throw new Error('is no regular file');
    const { size } = stats;
    if (size > MAX_BYTES) throw new Error(`has ${size} bytes; at most ${MAX_BYTES} are read`);
    return readFileSync(descriptor, 'utf8');
  } finally {
    closeSync(descriptor);
  }
}

/** The text of a file below `/proc` or `/sys`; `undefined` where it is missing or sealed. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/** The names in a directory; none where it is missing, or belongs to another user. */
export function listIfThere(path: string): readonly string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

interface FileWatchOptions {
  readonly path: string;
  /** The text that is known already: the first text that differs is the first change. */
  readonly text: string;
  readonly clock: Clock;
  /** Called with every new text, as soon as it can be read. */
  readonly onChange: (text: string) => void;
}

/** Not inotify, as upstream: kubelet updates a ConfigMap by replacing a link two directories up, which it misses. */
const PERIOD_MS = 2_000;

/** Polls one file for ever. A file that is missing or cannot be read is no change. */
export function watchFile({ path, text, clock, onChange }: FileWatchOptions): void {
  let known = text;
  let seen = '';

  const look = async () => {
    const { ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    const found = `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
    if (found === seen) return;
    const read = readRegularFile(path);
    seen = found;
    if (read === known) return;
    known = read;
    onChange(read);
  };
  const arm = () => {
    clock.after(PERIOD_MS, () => void look().then(arm, arm));
  };
  arm();
}
