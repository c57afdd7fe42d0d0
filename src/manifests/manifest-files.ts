import { constants, readdirSync, readFileSync, type Stats, statSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../util/clock.ts';
import type { Found } from '../util/found.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { inSlices } from '../util/wait.ts';

export type Content =
  | { readonly status: 'text'; readonly text: string }
  | { readonly status: 'refused'; readonly err: Found }
  | { readonly status: 'absent' };

export interface Scan {
  /** Files that have changed and come to rest, for {@link ManifestFiles.take}. */
  readonly rested: readonly string[];
  /** Milliseconds until the next other file comes to rest; `undefined` when all are at rest. */
  readonly settlesInMs: number | undefined;
  /** Milliseconds that looking at all files took, without reading. */
  readonly lookCostMs: number;
}

/** The same for two looks at the same file with the same content. Numbers, because there are very many looks. */
type Look = Pick<Stats, 'dev' | 'ino' | 'size' | 'mtimeMs' | 'ctimeMs'>;

const ABSENT: Look = { dev: 0, ino: 0, size: 0, mtimeMs: 0, ctimeMs: 0 };

/** The place of a path among those that are given. */
export type PathNumber = number;

/** A file that does not look as it did when its content was delivered last. */
interface Pending {
  readonly look: Look;
  /** The time of the first sight of this look, and that since which looks have changed. */
  readonly since: number;
  readonly restlessSince: number;
}

const MAX_BYTES = 64 * 1024 * 1024;

const UTF8 = new TextDecoder('utf-8', { fatal: true });

/** Longer than a tick of the file system's clock, so that a later write shows in the next look. */
const QUIET_MS = 50;

/**
 * Removals wait longer than additions. A file that has become smaller or has gone is usually being written: truncated
 * and not yet filled, or removed and not yet created again.
 */
const SMALLER_QUIET_MS = 200;
const EMPTY_QUIET_MS = 400;

/** A file that changes for longer is reported, and other files no longer wait for it. */
const RESTLESS_MS = 5_000;

export interface ManifestFilesOptions {
  readonly paths: readonly string[];
  /** Whether something of this file, or of a file in this directory, is served. For messages. */
  readonly isServed: (path: string) => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The manifest files under the given paths. A file that has changed is read once it has looked the same for a while,
 * by this machine's clock: the times of a file may come from another machine.
 *
 * Directories are listed asynchronously, so a network file system that hangs holds up nothing else. Files are looked at
 * and read synchronously, as thousands of them in another thread cost ten times as much (docs/adr/0030).
 *
 * A given path that is gone, or where a volume is no longer mounted, is a fault, as it is at the start. Only a file
 * that is gone from a directory that is there has been removed (docs/adr/0034).
 */
export class ManifestFiles {
  readonly #paths: readonly string[];
  readonly #isServed: (path: string) => boolean;
  readonly #clock: Clock;
  readonly #log: Log;
  /** The file systems of the paths while there were files. */
  readonly #devices = new Map<string, number>();
  /** For each of the paths: its files in their order, until their removal has been delivered. */
  readonly #files: string[][];
  /** The look of the content that was delivered last. */
  readonly #accepted = new Map<string, Look>();
  readonly #pending = new Map<string, Pending>();
  /** By step and path, of what cannot be listed, looked at or read: the error that was reported last. */
  readonly #failing = new Map<string, { readonly path: string; readonly err: string }>();

  constructor({ paths, isServed, clock, log }: ManifestFilesOptions) {
    this.#paths = paths;
    this.#isServed = isServed;
    this.#clock = clock;
    this.#log = log;
    this.#files = paths.map(() => []);
  }

  /** All files in their order of precedence: that of the given paths, then of names. */
  get order(): ReadonlySet<string> {
    return new Set(this.#files.flat());
  }

  /** What cannot be read now. */
  get failing(): Iterable<{ readonly path: string; readonly err: string }> {
    return this.#failing.values();
  }

  /** Rejects with one sentence when a path cannot be used. */
  async check(): Promise<void> {
    for (const path of this.#paths) {
      const stats = await stat(path).catch((error: unknown) => {
        throw new Error(
          isAbsence(error)
            ? `there is no file or directory ${JSON.stringify(path)} to read manifests from`
            : `the manifests at ${JSON.stringify(path)} cannot be read: ${messageOf(error)}`,
          { cause: error },
        );
      });
      if (!stats.isFile() && !stats.isDirectory()) {
        throw new Error(`${JSON.stringify(path)} is neither a file nor a directory of manifests`);
      }
    }
  }

  /** Looks at every file, or only at those that have not come to rest yet and at those that were `touched`. */
  async scan(touched?: ReadonlyMap<string, PathNumber>): Promise<Scan> {
    const beganAt = this.#clock.now();
    const looks = await this.#lookAt(touched === undefined ? await this.#listAll() : this.#listSome(touched));
    // One time for all files: files that change together come to rest together.
    const now = this.#clock.now();
    const rested: string[] = [];
    let settlesInMs: number | undefined;
    for (const [path, look] of looks) {
      const waitMs = this.#settle(path, look, now);
      if (waitMs === 0) rested.push(path);
      else if (waitMs !== undefined) settlesInMs = Math.min(waitMs, settlesInMs ?? waitMs);
    }
    for (const [index, files] of this.#files.entries()) {
      this.#files[index] = files.filter((path) => this.#isKnown(path));
    }
    return { rested, settlesInMs, lookCostMs: now - beganAt };
  }

  /** Reads a file that has `rested`. `changing`: it is not at rest after all; `undefined`: it cannot be read now. */
  take(path: string): Content | 'changing' | undefined {
    const look = this.#pending.get(path)?.look;
    const content = look && this.#read(path, look);
    if (content === undefined || content === 'changing') return content;
    this.#pending.delete(path);
    if (look === ABSENT || look === undefined) this.#accepted.delete(path);
    else this.#accepted.set(path, look);
    this.#report(path, undefined);
    return content;
  }

  #isKnown(path: string): boolean {
    return this.#accepted.has(path) || this.#pending.has(path);
  }

  /** Milliseconds until the file may be read, 0 for now; `undefined` when it has not changed or never rests. */
  #settle(path: string, look: Look, now: number): number | undefined {
    const accepted = this.#accepted.get(path);
    if (isSame(look, accepted ?? ABSENT)) {
      this.#pending.delete(path);
      this.#report(path, undefined);
      return undefined;
    }
    const pending = this.#pending.get(path);
    const since = pending !== undefined && isSame(look, pending.look) ? pending.since : now;
    const restlessSince = pending?.restlessSince ?? now;
    this.#pending.set(path, { look, since, restlessSince });
    const waitMs = Math.max(0, since + quietMs(look, accepted) - now);
    if (waitMs === 0 || now - restlessSince < RESTLESS_MS) return waitMs;
    this.#report(path, 'it keeps changing');
    return undefined;
  }

  /** Leaves out those of a directory that cannot be listed now. */
  async #listAll(): Promise<readonly string[]> {
    const listed: string[][] = [];
    for (const [number, given] of this.#paths.entries()) {
      try {
        const { files, device } = await filesAt(given);
        if (files.length > 0) this.#devices.set(given, device);
        else this.#checkPath(given);
        listed.push(this.#add(number, files));
        this.#report(given, undefined, 'list');
      } catch (error) {
        this.#cannotList(given, error);
      }
    }
    return listed.flat();
  }

  #listSome(touched: ReadonlyMap<string, PathNumber>): Iterable<string> {
    for (const [path, number] of touched) this.#add(number, [path]);
    return new Set([...touched.keys(), ...this.#pending.keys()]);
  }

  /** All files of that path, with the new ones of these. */
  #add(number: PathNumber, paths: readonly string[]): string[] {
    const files = this.#files[number] ?? [];
    const added = paths.filter((path) => !this.#isKnown(path));
    const all = added.length === 0 ? files : [...files, ...added].sort();
    this.#files[number] = all;
    return all;
  }

  /** Leaves out files at rest. */
  async #lookAt(paths: Iterable<string>): Promise<Map<string, Look>> {
    const looks = new Map<string, Look>();
    const remaining = paths[Symbol.iterator]();
    await inSlices(this.#clock, () => {
      const { done, value: path } = remaining.next();
      if (done) return false;
      const look = this.#lookOf(path);
      // Nearly all files are as they were, and what is kept of so many for the length of a scan is slow to collect.
      const isAtRest =
        look !== undefined && !this.#pending.has(path) && isSame(look, this.#accepted.get(path) ?? ABSENT);
      if (isAtRest) this.#report(path, undefined);
      else if (look !== undefined) looks.set(path, look);
      return true;
    });
    return looks;
  }

  /** `undefined` when the file cannot be looked at. */
  #lookOf(path: string): Look | undefined {
    try {
      const stats = statSync(path);
      // Opening a pipe or a device can have effects.
      return stats.isFile() ? lookOf(stats) : ABSENT;
    } catch (error) {
      if (isAbsence(error)) return this.#lookOfAbsent(path);
      this.#report(path, messageOf(error));
      return undefined;
    }
  }

  #lookOfAbsent(path: string): Look | undefined {
    const given = this.#paths.includes(path) ? path : dirname(path);
    try {
      this.#checkPath(given);
      return ABSENT;
    } catch (error) {
      this.#cannotList(given, error);
      return undefined;
    }
  }

  #cannotList(given: string, error: unknown): void {
    this.#report(given, messageOf(error), 'list');
    // What seems to be gone must come to rest anew once the given path is back.
    for (const path of this.#files[this.#paths.indexOf(given)] ?? []) this.#pending.delete(path);
  }

  /** Throws when a given path is gone, or is an empty directory in the place of a volume. */
  #checkPath(given: string): void {
    const stats = statSync(given);
    const device = this.#devices.get(given);
    if (device === undefined || stats.dev === device || !stats.isDirectory() || readdirSync(given).length > 0) return;
    throw new Error('it is an empty directory on another file system than before; is a volume not mounted?');
  }

  /** `changing` when another content came in while it was read; `undefined` when it cannot be read. */
  #read(path: string, look: Look): Content | 'changing' | undefined {
    if (look === ABSENT) return { status: 'absent' };
    if (look.size > MAX_BYTES) {
      const limit = `${MAX_BYTES / 1024 / 1024} MiB`;
      return {
        status: 'refused',
        err: { found: `it is larger than ${limit}`, advice: 'divide it into several files' },
      };
    }
    try {
      // O_NONBLOCK: the path may be a pipe by now.
      const bytes = readFileSync(path, { flag: constants.O_RDONLY | constants.O_NONBLOCK });
      const after = this.#lookOf(path);
      if (after === undefined || !isSame(after, look)) return 'changing';
      return { status: 'text', text: UTF8.decode(bytes) };
    } catch (error) {
      if (error instanceof TypeError) return { status: 'refused', err: { found: 'it is not UTF-8 text' } };
      if (isAbsence(error)) return 'changing';
      this.#report(path, messageOf(error));
      return undefined;
    }
  }

  /** Logs every new error of a path once, and its end once. */
  #report(path: string, err: string | undefined, step: 'list' | 'read' = 'read'): void {
    if (err === undefined && this.#failing.size === 0) return;
    const key = `${step} ${path}`;
    if (err === this.#failing.get(key)?.err) return;
    if (err === undefined) {
      this.#failing.delete(key);
      this.#log.info('Manifests can be read again', { file: path });
    } else {
      this.#failing.set(key, { path, err });
      const rest = this.#isServed(path) ? 'their last good state is kept' : 'nothing of them is served';
      this.#log.error(`Manifests cannot be read; ${rest}`, { file: path, err });
    }
  }
}

/** The manifests in a directory, or the file itself. */
async function filesAt(path: string): Promise<{ readonly files: readonly string[]; readonly device: number }> {
  const stats = await stat(path);
  const files = stats.isDirectory() ? (await readdir(path)).filter(isManifest).map((name) => join(path, name)) : [path];
  return { files, device: stats.dev };
}

/**
 * By the name in its directory. Hidden files belong to editors. In mounted ConfigMaps, hidden directories are the
 * targets of visible links.
 */
export function isManifest(name: string): boolean {
  return /^[^.].*\.(yaml|yml|json)$/.test(name);
}

function lookOf({ dev, ino, size, mtimeMs, ctimeMs }: Stats): Look {
  return { dev, ino, size, mtimeMs, ctimeMs };
}

function isSame(one: Look, other: Look): boolean {
  return (
    one.mtimeMs === other.mtimeMs &&
    one.ctimeMs === other.ctimeMs &&
    one.size === other.size &&
    one.ino === other.ino &&
    one.dev === other.dev
  );
}

function quietMs(look: Look, accepted: Look | undefined): number {
  if (accepted === undefined || look.size >= accepted.size) return QUIET_MS;
  return look.size === 0 && look !== ABSENT ? EMPTY_QUIET_MS : SMALLER_QUIET_MS;
}

function isAbsence(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}
