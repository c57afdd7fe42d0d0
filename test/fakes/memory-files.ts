import { dirname } from 'node:path';
import type { FileContent, Files, NewFile } from '../../src/state/files.ts';

interface Inode {
  bytes: Buffer;
  /** What a loss of power leaves for certain. */
  synced: Buffer;
  changedAt: number;
}

/** A change of a directory: names and what they stand for from then on. */
type Entries = ReadonlyMap<string, Inode | undefined>;

/** The machine has no power from here on. */
export class PowerLoss extends Error {}

/**
 * A file system in memory that promises no more than POSIX: until a sync, a loss of power may undo any change of a
 * directory without the others, and leave any part of what was written to a file.
 */
export class MemoryFiles implements Files {
  readonly #durable: Map<string, Inode>;
  readonly #current: Map<string, Inode>;
  readonly #unsynced: Entries[] = [];
  /** Calls until the power is lost. */
  callsLeft = Number.POSITIVE_INFINITY;
  calls = 0;

  constructor(content: ReadonlyMap<string, Inode> = new Map()) {
    this.#durable = new Map(content);
    this.#current = new Map(content);
  }

  async prepare(): Promise<void> {
    this.#step();
  }

  async read(path: string): Promise<FileContent | undefined> {
    this.#step();
    const inode = this.#current.get(path);
    return inode && { bytes: inode.bytes, changedAt: inode.changedAt };
  }

  async create(path: string): Promise<NewFile> {
    this.#step();
    if (this.#current.has(path)) throw Object.assign(new Error(`EEXIST: ${path}`), { code: 'EEXIST' });
    const inode: Inode = { bytes: Buffer.alloc(0), synced: Buffer.alloc(0), changedAt: 0 };
    this.#change(new Map([[path, inode]]));
    return {
      write: async (bytes) => {
        this.#step();
        inode.bytes = Buffer.concat([inode.bytes, bytes]);
      },
      sync: async () => {
        this.#step();
        inode.synced = inode.bytes;
      },
      close: async () => this.#step(),
    };
  }

  async rename(from: string, to: string): Promise<void> {
    this.#step();
    const inode = this.#current.get(from);
    if (inode === undefined) throw Object.assign(new Error(`ENOENT: ${from}`), { code: 'ENOENT' });
    this.#change(new Map([[from, undefined] as const, [to, inode] as const]));
  }

  async syncDirectory(path: string): Promise<void> {
    this.#step();
    const here = this.#unsynced.filter((entries) => [...entries.keys()].every((name) => dirname(name) === path));
    for (const entries of here) apply(entries, this.#durable);
    this.#unsynced.length = 0;
  }

  async remove(path: string): Promise<void> {
    this.#step();
    if (this.#current.has(path)) this.#change(new Map([[path, undefined]]));
  }

  async touch(path: string, at: number): Promise<void> {
    this.#step();
    const inode = this.#current.get(path);
    if (inode === undefined) throw Object.assign(new Error(`ENOENT: ${path}`), { code: 'ENOENT' });
    inode.changedAt = at;
  }

  /** Everything that the next start of the machine may find; the last one is what a killed process leaves. */
  *afterLoss(): Generator<MemoryFiles> {
    for (const share of [0, 0.5, 1]) {
      for (let chosen = 0; chosen < 2 ** this.#unsynced.length; chosen++) {
        const found = new Map(this.#durable);
        for (const [index, entries] of this.#unsynced.entries()) {
          if ((chosen & (1 << index)) !== 0) apply(entries, found);
        }
        yield new MemoryFiles(new Map([...found].map(([path, inode]) => [path, leftOf(inode, share)])));
      }
    }
  }

  #change(entries: Entries): void {
    apply(entries, this.#current);
    this.#unsynced.push(entries);
  }

  #step(): void {
    if (this.calls >= this.callsLeft) throw new PowerLoss('the power is lost');
    this.calls += 1;
  }
}

function apply(entries: Entries, to: Map<string, Inode>): void {
  for (const [path, inode] of entries) {
    if (inode === undefined) to.delete(path);
    else to.set(path, inode);
  }
}

/** `share`: of what was written since the last sync. */
function leftOf({ bytes, synced, changedAt }: Inode, share: number): Inode {
  const left = bytes.subarray(0, synced.length + Math.floor((bytes.length - synced.length) * share));
  return { bytes: left, synced: left, changedAt };
}
