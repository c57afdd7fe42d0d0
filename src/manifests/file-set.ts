import { hash } from 'node:crypto';
import { type BigIntStats, constants } from 'node:fs';
import { open, readdir, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import type { FileRank } from './catalog.ts';
import { ABSENT, type Look, Settling } from './settling.ts';

export type Content =
  | { readonly status: 'text'; readonly text: string; readonly hash: string }
  /** There, and not to be read. */
  | { readonly status: 'refused'; readonly err: string }
  | { readonly status: 'absent' };

export interface FileChange {
  readonly rank: FileRank;
  readonly content: Content;
}

export interface Scan {
  /** Files with another content than the last one that was handed out. */
  readonly changes: readonly FileChange[];
  /** When the next file comes to rest, in milliseconds; `undefined` when all are at rest. */
  readonly settlesInMs: number | undefined;
  /** What a scan takes at least, with nothing to read. */
  readonly lookCostMs: number;
}

const MAX_BYTES = 64 * 1024 * 1024;

/** After that a file that never comes to rest is reported, and the others no longer wait for it. */
const RESTLESS_MS = 5_000;

/** Looks under way at a time: enough to keep libuv's threads busy. */
const PARALLEL_LOOKS = 64;

/** The manifest files under the paths that the user gave: which there are, and which have changed. */
export class FileSet {
  readonly #paths: readonly string[];
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #settling = new Settling();
  /** Of every file that has been accepted or looked at. */
  readonly #ranks = new Map<string, FileRank>();
  readonly #hashes = new Map<string, string>();
  /** The error that was reported for a step and a path, until it has gone. */
  readonly #failing = new Map<string, string>();

  constructor({ paths, clock, log }: { readonly paths: readonly string[]; readonly clock: Clock; readonly log: Log }) {
    this.#paths = paths;
    this.#clock = clock;
    this.#log = log;
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

  /** The directories in which a change would show, each with what tells it from another one at the same path. */
  async directories(): Promise<Map<string, string>> {
    const directories = new Map<string, string>();
    // The parent tells when the path itself is created, removed or replaced.
    for (const path of this.#paths.flatMap((given) => [given, dirname(resolve(given))])) {
      const stats = await stat(path, { bigint: true }).catch(() => undefined);
      if (stats?.isDirectory()) directories.set(path, `${stats.dev}:${stats.ino}`);
    }
    return directories;
  }

  /** Looks at every file and reads those that have changed and come to rest. */
  async scan(): Promise<Scan> {
    const beganAt = this.#clock.now();
    const looks = await this.#look();
    // One time for all of them, so that files that change together come to rest together.
    const now = this.#clock.now();
    const lookCostMs = now - beganAt;
    const changes: FileChange[] = [];
    let settlesInMs: number | undefined;
    for (const [rank, look] of looks) {
      const result = await this.#follow(rank, look, now);
      if (typeof result === 'number') settlesInMs = Math.min(result, settlesInMs ?? result);
      else if (result !== undefined) changes.push(result);
    }
    return { changes, settlesInMs, lookCostMs };
  }

  /** The change of a file that looked so at `now`, the milliseconds until there may be one, or `undefined`. */
  async #follow(rank: FileRank, look: Look, now: number): Promise<FileChange | number | undefined> {
    const { path } = rank;
    const waitMs = this.#settling.wait(path, look, now);
    if (waitMs === undefined) {
      this.#report(path, undefined);
      return undefined;
    }
    this.#ranks.set(path, rank);
    if (waitMs > 0) {
      if (this.#settling.restlessMs(path, now) < RESTLESS_MS) return waitMs;
      this.#report(path, 'it keeps changing');
      return undefined;
    }
    const content: Content | 'changing' | undefined =
      look === ABSENT ? { status: 'absent' } : await this.#read(path, look);
    if (content === undefined) return undefined;
    if (content === 'changing') return 1;
    this.#report(path, undefined);
    this.#settling.accept(path, look);
    const known = this.#hashes.get(path);
    switch (content.status) {
      case 'absent':
        this.#ranks.delete(path);
        this.#hashes.delete(path);
        break;
      case 'refused':
        this.#hashes.delete(path);
        break;
      case 'text':
        this.#hashes.set(path, content.hash);
        if (content.hash === known) return undefined;
    }
    return { rank, content };
  }

  /** A look at every file that is there or was; not at those of which nothing can be said now. */
  async #look(): Promise<[FileRank, Look][]> {
    const ranks = new Map<string, FileRank>();
    const unreadable = new Set<number>();
    for (const [source, given] of this.#paths.entries()) {
      try {
        for (const path of await filesAt(given)) if (!ranks.has(path)) ranks.set(path, { source, path });
        this.#report(given, undefined, 'list');
      } catch (error) {
        unreadable.add(source);
        this.#report(given, messageOf(error), 'list');
      }
    }
    const gone = [...this.#ranks.values()].filter(({ path, source }) => !ranks.has(path) && !unreadable.has(source));
    const looks: [FileRank, Look][] = gone.map((rank) => [rank, ABSENT]);

    const present = [...ranks.values()];
    for (let from = 0; from < present.length; from += PARALLEL_LOOKS) {
      const some = present.slice(from, from + PARALLEL_LOOKS);
      const found = await Promise.all(some.map(({ path }) => this.#lookAt(path)));
      for (const [index, rank] of some.entries()) {
        const look = found[index];
        if (look !== undefined) looks.push([rank, look]);
      }
    }
    return looks;
  }

  async #lookAt(path: string): Promise<Look | undefined> {
    try {
      const stats = await stat(path, { bigint: true });
      // Pipes, devices and directories with such a name are no manifests, and opening some of them has effects.
      if (stats.isFile()) return lookOf(stats);
    } catch (error) {
      if (!isAbsence(error)) {
        this.#report(path, messageOf(error));
        return undefined;
      }
    }
    return this.#ranks.has(path) ? ABSENT : undefined;
  }

  /** `changing` when another content came in while it was read; `undefined` when it cannot be read. */
  async #read(path: string, look: Look): Promise<Content | 'changing' | undefined> {
    if (look.size > MAX_BYTES) {
      return {
        status: 'refused',
        err: `it is larger than ${MAX_BYTES / 1024 / 1024} MiB; divide it into several files`,
      };
    }
    try {
      // Not to wait for a writer, should the path be a pipe by now.
      const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
      try {
        if (lookOf(await file.stat({ bigint: true })).id !== look.id) return 'changing';
        const bytes = await file.readFile();
        if (lookOf(await file.stat({ bigint: true })).id !== look.id) return 'changing';
        return {
          status: 'text',
          text: new TextDecoder('utf-8', { fatal: true }).decode(bytes),
          hash: hash('sha1', bytes),
        };
      } finally {
        await file.close();
      }
    } catch (error) {
      if (error instanceof TypeError) return { status: 'refused', err: 'it is not UTF-8 text' };
      if (isAbsence(error)) return 'changing';
      this.#report(path, messageOf(error));
      return undefined;
    }
  }

  /**
   * Once for every new error of a path, and once when it has gone. The steps fail by themselves: a file that was given
   * by itself can be found and yet not be read.
   */
  #report(path: string, err: string | undefined, step: 'list' | 'read' = 'read'): void {
    const key = `${step} ${path}`;
    if (err === this.#failing.get(key)) return;
    if (err === undefined) {
      this.#failing.delete(key);
      this.#log.info('Manifests can be read again', { file: path });
    } else {
      this.#failing.set(key, err);
      this.#log.error('Manifests cannot be read; their last good state is kept', { file: path, err });
    }
  }
}

/** The manifests in a directory, or the file itself; none where there is nothing. */
async function filesAt(path: string): Promise<string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const names = await readdir(path);
    // Hidden ones are editors' and, in mounted ConfigMaps, the directories that the visible links lead to.
    const manifests = names.filter((name) => !name.startsWith('.') && /\.(yaml|yml|json)$/.test(name));
    return manifests.sort().map((name) => join(path, name));
  } catch (error) {
    if (isAbsence(error)) return [];
    throw error;
  }
}

function lookOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): Look {
  return { id: `${dev}:${ino}:${size}:${mtimeNs}:${ctimeNs}`, size: Number(size) };
}

function isAbsence(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}
