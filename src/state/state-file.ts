import { join } from 'node:path';
import type { Finding } from '../model/finding.ts';
import type { SavedObject } from '../model/saved-object.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { rfc3339 } from '../util/timestamp.ts';
import { finished } from '../util/wait.ts';
import type { Files } from './files.ts';
import {
  type Body,
  checkBody,
  type Head,
  headLine,
  type Provenance,
  readHead,
  readObjects,
  UnusableState,
} from './format.ts';

const NAME = 'last-state';

/** What a file said of the cluster, or of manifests, when it was written. */
export interface SavedState {
  readonly head: Head;
  /** Until then it was what the source said, in milliseconds since 1970. */
  readonly knownAt: number;
  /** Of the objects. */
  readonly digest: string;
  /** To be read once. Throws {@link UnusableState}. */
  readonly objects: Iterable<SavedObject>;
}

export interface StateFileOptions {
  /** `--state-dir`. */
  readonly directory: string;
  readonly files: Files;
  readonly clock: Clock;
}

/**
 * The one file of the last state. It is replaced as a whole, so that after a loss of power at any moment there is the
 * old one or the new one.
 */
export class StateFile {
  readonly path: string;
  readonly #options: StateFileOptions;
  /** In the same directory, and so on the same file system. */
  readonly #newPath: string;
  #finding: Finding | undefined;

  constructor(options: StateFileOptions) {
    this.#options = options;
    this.path = join(options.directory, NAME);
    this.#newPath = `${this.path}.new`;
  }

  /** What is wrong with it, since it was read or written last. */
  get finding(): Finding | undefined {
    return this.#finding;
  }

  /**
   * `undefined` where there is none. Rejects with {@link UnusableState} for one that is not this node's, or damaged, or
   * older than `maxAgeMs` where that is above zero.
   */
  async read(own: Pick<Provenance, 'node' | 'source'>, maxAgeMs: number): Promise<SavedState | undefined> {
    return await this.#noting('used', this.#read(own, maxAgeMs));
  }

  /** Replaces the file. Rejects when that fails, and then the one before stays. */
  async write(head: Head, body: Body): Promise<void> {
    await this.#noting('written', this.#write(head, body));
  }

  /** What it says is still so. Rejects where there is none. */
  async confirm(at: number): Promise<void> {
    await this.#noting('written', this.#options.files.touch(this.path, at));
  }

  async #noting<T>(verb: 'used' | 'written', work: Promise<T>): Promise<T> {
    try {
      const done = await work;
      this.#finding = undefined;
      return done;
    } catch (error) {
      const found = `the state on disk cannot be ${verb}: ${messageOf(error)}`;
      const advice = 'correct that, or a start has no last state until one is written anew';
      this.#finding = { level: 'warn', found, advice, place: this.path };
      throw error;
    }
  }

  async #read(own: Pick<Provenance, 'node' | 'source'>, maxAgeMs: number): Promise<SavedState | undefined> {
    const { files, directory, clock } = this.#options;
    await files.prepare(directory);
    const found = await files.read(this.path);
    if (found === undefined) return undefined;
    const { bytes, changedAt } = found;
    const { head, digest, end } = readHead(bytes);
    if (head.node !== own.node) throw new UnusableState(`it is of another node: ${head.node}`);
    if (head.source !== own.source) throw new UnusableState(`it is of another source of Services: ${head.source}`);
    const knownAt = Math.max(head.writtenAt, changedAt);
    if (maxAgeMs > 0) checkAge(clock.wallNow() - knownAt, knownAt, maxAgeMs);
    await finished(clock, checkBody(bytes, end, digest));
    return { head, knownAt, digest, objects: readObjects(bytes, end) };
  }

  async #write(head: Head, body: Body): Promise<void> {
    const { files, directory } = this.#options;
    await files.prepare(directory);
    // Of a process that was killed.
    await files.remove(this.#newPath);
    try {
      const file = await files.create(this.#newPath);
      try {
        await file.write(headLine(head, body.digest));
        for (const piece of body.pieces) await file.write(piece);
        // Or a rename may last, and what was written not.
        await file.sync();
      } finally {
        await file.close();
      }
      await files.rename(this.#newPath, this.path);
      await files.syncDirectory(directory);
    } catch (error) {
      // A part of a file would take room of a full disk.
      await files.remove(this.#newPath).catch(() => {});
      throw error;
    }
  }
}

/** One line of the log. What cannot be used is no state, and the rest of the program goes on without. */
export function reportUnusable(error: unknown, { path }: Pick<StateFile, 'path'>, log: Pick<Log, 'error'>): void {
  log.error('The state on disk cannot be used', { file: path, err: messageOf(error) });
}

function checkAge(ageMs: number, knownAt: number, maxAgeMs: number): void {
  const time = rfc3339(knownAt);
  if (ageMs < 0)
    throw new UnusableState(`it is of ${time}, which by this machine's clock is yet to come (--state-max-age)`);
  if (ageMs > maxAgeMs) throw new UnusableState(`it is of ${time}, longer ago than --state-max-age`);
}
