import { closeSync, constants, fchmodSync, fstatSync, openSync, write } from 'node:fs';
import { promisify } from 'node:util';
import type { ConnectionEntry, ConnectionLogSink } from '../../model/connection-log.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import { withDeadline } from '../../util/wait.ts';
import { entryLine, missingLine } from './line.ts';

/** Client addresses are personal data: nobody but the owner writes, nobody but the group reads. */
const MODE = 0o640;

/** Some 30,000 lines. Beyond it the disk is too slow, and entries are dropped. */
export const MAX_QUEUED_CHARACTERS = 8 << 20;

/** Per call, so that little is in doubt when it fails. */
const CHARACTERS_PER_WRITE = 1 << 20;

/** After a failed write. */
const RETRY_MS = 1_000;

/** How long the end of the program waits for the disk. */
const CLOSE_MS = 2_000;

type Write = (fd: number, bytes: Buffer, offset: number) => Promise<{ readonly bytesWritten: number }>;

const writeTo: Write = promisify(write);

interface ConnectionLogFileOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Entries were dropped; `err`: why they could not be written, if that is known. */
  readonly onDropped: (count: number, err?: string) => void;
  /** Another one only in tests. */
  readonly write?: Write;
}

/**
 * The file of `--connection-log`. Writing happens outside the main thread, so a slow disk delays nothing. What does not
 * fit into a bounded queue is dropped, and a line says how many entries that were. Two processes may append to it, as
 * during an upgrade.
 */
export class ConnectionLogFile implements ConnectionLogSink {
  readonly #options: ConnectionLogFileOptions;
  #fd: number;
  /** Lines, and how long they are together. */
  readonly #queue: string[] = [];
  #queued = 0;
  #missing = 0;
  /** The file ends with a part of a line. */
  #isTorn = false;
  #mustReopen = false;
  #writing: Promise<void> | undefined;
  #retry: Timer | undefined;
  /** Why the last write failed. */
  #err: string | undefined;

  /** Throws a sentence for the user when there can be no such file. */
  constructor(options: ConnectionLogFileOptions) {
    this.#options = options;
    try {
      this.#fd = openLog(options.path);
    } catch (error) {
      throw new Error(`--connection-log ${JSON.stringify(options.path)}: ${messageOf(error)}`);
    }
  }

  ended(entries: readonly ConnectionEntry[]): void {
    let dropped = 0;
    for (const entry of entries) {
      const text = entryLine(entry);
      if (this.#queued + text.length > MAX_QUEUED_CHARACTERS) {
        dropped++;
        continue;
      }
      this.#queue.push(text);
      this.#queued += text.length;
    }
    if (dropped > 0) {
      this.#missing += dropped;
      this.#options.onDropped(dropped, this.#err);
    }
    this.#write();
  }

  lost(count: number): void {
    this.#missing += count;
    this.#write();
  }

  /** Goes on in a new file of the same path, because somebody has renamed the old one. No entry is lost. */
  reopen(): void {
    this.#mustReopen = true;
    this.#retry?.cancel();
    this.#retry = undefined;
    this.#write();
  }

  /** Resolves when all is written, or cannot be in time. */
  async close(): Promise<void> {
    const { clock } = this.#options;
    this.#retry?.cancel();
    await withDeadline(this.#writing ?? Promise.resolve(), { clock, ms: CLOSE_MS, late: 'late' }).catch(() => {});
    // A write that hangs must not find another file at this number.
    if (this.#writing === undefined) closeSync(this.#fd);
  }

  #write(): void {
    if (this.#retry !== undefined) return;
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined;
    });
  }

  /** Ends in the same turn as its last look at the queue, so nothing is left behind. */
  async #writeAll(): Promise<void> {
    // What else comes in this turn goes along.
    await Promise.resolve();
    for (;;) {
      if (this.#mustReopen) this.#openAgain();
      const lines = this.#take();
      if (lines.length === 0) return;
      if (await this.#append(lines)) continue;
      this.#retry = this.#options.clock.after(RETRY_MS, () => {
        this.#retry = undefined;
        this.#write();
      });
      return;
    }
  }

  #openAgain(): void {
    const { path, log } = this.#options;
    this.#mustReopen = false;
    try {
      const fd = openLog(path);
      closeSync(this.#fd);
      this.#fd = fd;
      this.#isTorn = false;
      log.info('Opened the file of the connection log again', { file: path });
    } catch (error) {
      log.warn('Cannot open the file of the connection log again, so the one before stays in use', {
        file: path,
        err: messageOf(error),
      });
    }
  }

  #take(): readonly string[] {
    if (this.#queue.length === 0) {
      return this.#missing === 0 ? [] : [missingLine(this.#missing, this.#options.clock.wallNow())];
    }
    let length = 0;
    const past = this.#queue.findIndex((text) => {
      length += text.length;
      return length > CHARACTERS_PER_WRITE;
    });
    return this.#queue.slice(0, past < 0 ? undefined : Math.max(1, past));
  }

  /** False when not all of it could be written. The rest stays in the queue. */
  async #append(lines: readonly string[]): Promise<boolean> {
    const { write: append = writeTo } = this.#options;
    const isMissingLine = this.#queue.length === 0;
    const missing = this.#missing;
    const head = this.#isTorn ? '\n' : '';
    const bytes = Buffer.from(head + lines.join(''));
    let written = 0;
    this.#err = undefined;
    try {
      while (written < bytes.length) written += (await append(this.#fd, bytes, written)).bytesWritten;
    } catch (error) {
      this.#err = messageOf(error);
    }
    let end = head.length;
    const whole = lines.filter((text) => {
      end += Buffer.byteLength(text);
      return end <= written;
    });
    this.#isTorn = written === 0 ? this.#isTorn : bytes[written - 1] !== NEWLINE;
    if (isMissingLine) {
      if (whole.length > 0) this.#missing -= missing;
    } else {
      this.#queue.splice(0, whole.length);
      for (const text of whole) this.#queued -= text.length;
    }
    return this.#err === undefined;
  }
}

const NEWLINE = 0x0a;

/** Throws an error whose message is a clause for the user. */
function openLog(path: string): number {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  let fd: number;
  try {
    // Not through a link, which somebody else may have made. Opening a pipe would block.
    fd = openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, MODE);
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    throw new Error(CAUSES.get(code) ?? `cannot be opened (${message})`);
  }
  try {
    const stats = fstatSync(fd);
    if (!stats.isFile()) throw new Error('is no regular file; name a file, which is made if there is none');
    if ((stats.mode & 0o777 & ~MODE) !== 0) fchmodSync(fd, stats.mode & MODE);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

const CAUSES: ReadonlyMap<string, string> = new Map([
  ['ELOOP', 'is a symbolic link, which is not followed; name the file itself'],
  ['EISDIR', 'is a directory; name a file in it'],
  ['ENXIO', 'is no regular file; name a file, which is made if there is none'],
  ['ENOENT', 'its directory does not exist; make it'],
  ['ENOTDIR', 'what should be its directory is a file; correct the path'],
  ['EACCES', 'may not be written by this user; give the proxy the right to, or name another file'],
  ['EROFS', 'is on a file system that is read-only; name another file'],
]);
