import { closeSync, constants, fchmodSync, fstat, fstatSync, ftruncate, openSync, read, write } from 'node:fs';
import { promisify } from 'node:util';
import type { ConnectionEntry, ConnectionLogSink } from '../../model/connection-log.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import { LastingFault } from '../../util/lasting-fault.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import { withDeadline } from '../../util/wait.ts';
import { entryLine, missingLine } from './line.ts';

/** Client addresses are personal data: only the owner writes, and only the group reads. */
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
const [readFrom, statsOf, cutTo] = [promisify(read), promisify(fstat), promisify(ftruncate)];

const NOTHING = Buffer.alloc(0);

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
  /** The beginning of the next line. The file ended with it after the last write. */
  #torn = NOTHING;
  /** The end of the file is not known: it was opened, or a write has failed. */
  #mustLook = true;
  #mustReopen = false;
  #writing: Promise<void> | undefined;
  #retry: Timer | undefined;
  /** Why the last write failed. */
  #err: string | undefined;
  readonly #fault: LastingFault;

  /** Throws a sentence for the user when there can be no such file. */
  constructor(options: ConnectionLogFileOptions) {
    this.#options = options;
    this.#fault = new LastingFault({
      log: options.log,
      begun: 'Cannot write the connection log; its entries wait, and are dropped when too many do',
      over: 'The connection log is written again',
    });
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

  /** Continues in a new file of the same path, because the old one was renamed. No entry is lost. */
  reopen(): void {
    this.#mustReopen = true;
    this.#stopWaiting();
    this.#write();
  }

  /** Resolves when all is written, or cannot be in time. */
  async close(): Promise<void> {
    const { clock, onDropped } = this.#options;
    this.#stopWaiting();
    this.#write();
    const end = (this.#writing ?? Promise.resolve()).then(() => this.#cutTorn());
    // A call that hangs must not find another file at this number.
    const closed = withDeadline(end, { clock, ms: CLOSE_MS, late: 'late' }).then(() => closeSync(this.#fd));
    await closed.catch(() => {});
    this.#stopWaiting();
    if (this.#queue.length > 0) onDropped(this.#queue.length, this.#err);
  }

  #stopWaiting(): void {
    this.#retry?.cancel();
    this.#retry = undefined;
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
      if (this.#mustReopen) await this.#openAgain();
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

  async #openAgain(): Promise<void> {
    const { path, log } = this.#options;
    this.#mustReopen = false;
    try {
      const fd = openLog(path);
      // Its entry goes to the new file as a whole.
      await this.#cutTorn();
      closeSync(this.#fd);
      this.#fd = fd;
      this.#mustLook = true;
      log.info('Opened the file of the connection log again', { file: path });
    } catch (error) {
      log.warn('Cannot open the file of the connection log again, so the one before stays in use', {
        file: path,
        err: messageOf(error),
      });
    }
  }

  #take(): readonly string[] {
    if (this.#queue.length === 0 && this.#missing > 0) {
      const text = missingLine(this.#missing, this.#options.clock.wallNow());
      this.#missing = 0;
      this.#queue.push(text);
      this.#queued += text.length;
    }
    let length = 0;
    const past = this.#queue.findIndex((text) => {
      length += text.length;
      return length > CHARACTERS_PER_WRITE;
    });
    return this.#queue.slice(0, past < 0 ? undefined : Math.max(1, past));
  }

  /**
   * False when not all of it could be written. The rest stays in the queue. A full disk takes a part of a line, and the
   * next try adds the other part: those who read along would take a file that gets shorter for a new one.
   */
  async #append(lines: readonly string[]): Promise<boolean> {
    const { path, write: append = writeTo } = this.#options;
    const bytes = Buffer.from(`\n${lines.join('')}`);
    // Behind the newline, which is written where the file ends within another line.
    let written = 1 + this.#torn.length;
    this.#err = undefined;
    try {
      if (this.#mustLook) written = await this.#lookAtEnd();
      this.#mustLook = false;
      while (written < bytes.length) written += (await append(this.#fd, bytes, written)).bytesWritten;
      this.#fault.succeeded({ file: path });
    } catch (error) {
      this.#err = messageOf(error);
      this.#mustLook = true;
      this.#fault.failed(this.#err, { file: path });
    }
    let end = 1;
    let whole = 0;
    for (const text of lines) {
      const next = end + Buffer.byteLength(text);
      if (next > written) break;
      end = next;
      whole++;
      this.#queued -= text.length;
    }
    this.#queue.splice(0, whole);
    this.#torn = bytes.subarray(end, written);
    return this.#err === undefined;
  }

  /** How much of a newline and the next line the file has already. Another process may have written to it. */
  async #lookAtEnd(): Promise<number> {
    if (await this.#endsTorn()) return 1 + this.#torn.length;
    const [last = NEWLINE] = await this.#end(1);
    return last === NEWLINE ? 1 : 0;
  }

  async #endsTorn(): Promise<boolean> {
    return this.#torn.length > 0 && this.#torn.equals(await this.#end(this.#torn.length));
  }

  /** The last bytes of the file, at most this many. */
  async #end(length: number): Promise<Buffer> {
    const { size } = await statsOf(this.#fd);
    const end = Buffer.alloc(Math.min(length, size));
    if (end.length > 0) await readFrom(this.#fd, end, 0, end.length, size - end.length);
    return end;
  }

  /** Before the file is left. What cannot be cut off stays. */
  async #cutTorn(): Promise<void> {
    try {
      if (await this.#endsTorn()) await cutTo(this.#fd, (await statsOf(this.#fd)).size - this.#torn.length);
    } catch {}
    this.#torn = NOTHING;
  }
}

const NEWLINE = 0x0a;

/** Throws an error whose message is a clause for the user. */
function openLog(path: string): number {
  const { O_RDWR, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
  let fd: number;
  try {
    // Not through a link, which somebody else may have made. Opening a pipe would block.
    fd = openSync(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, MODE);
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
