import { isDeepStrictEqual } from 'node:util';
import type { SourceEvent } from '../model/source.ts';
import type { ObjectId } from './file-state.ts';
import type { Report } from './report.ts';

/** A file's place in the order of precedence: that of `--manifests`, then of names. */
export interface FileRank {
  readonly source: number;
  readonly path: string;
}

interface FileEntry {
  readonly rank: FileRank;
  readonly objects: ReadonlyMap<ObjectId, SourceEvent>;
}

/**
 * The objects of all files as one set, and what of it has been delivered. An object that is in several files is taken
 * from the first of them. Work is in proportion to the files that change.
 */
export class Catalog {
  readonly #files = new Map<string, FileEntry>();
  /** Paths of the files that have the object; nearly always one. */
  readonly #holders = new Map<ObjectId, Set<string>>();
  readonly #touched = new Set<ObjectId>();
  readonly #delivered = new Map<ObjectId, SourceEvent>();
  /** The conflicts that have been reported, as the paths in their order. */
  readonly #conflicts = new Map<ObjectId, string>();

  /** Replaces what a file has; with nothing, it has gone. */
  set(rank: FileRank, objects: ReadonlyMap<ObjectId, SourceEvent> | undefined): void {
    const { path } = rank;
    for (const id of this.#files.get(path)?.objects.keys() ?? []) {
      this.#touched.add(id);
      this.#release(id, path);
    }
    if (objects === undefined) {
      this.#files.delete(path);
      return;
    }
    this.#files.set(path, { rank, objects });
    for (const id of objects.keys()) {
      this.#touched.add(id);
      const holders = this.#holders.get(id);
      if (holders === undefined) this.#holders.set(id, new Set([path]));
      else holders.add(path);
    }
  }

  /** The real differences since the last call, which count as delivered from now on. */
  takeChanges(): { readonly events: SourceEvent[]; readonly reports: Report[] } {
    const events: SourceEvent[] = [];
    const reports: Report[] = [];
    for (const id of this.#touched) {
      const entries = this.#entriesOf(id);
      const event = entries[0]?.objects.get(id);
      const change = this.#deliver(id, event);
      if (change !== undefined) events.push(change);
      reports.push(...this.#conflictOf(id, entries));
    }
    this.#touched.clear();
    return { events, reports };
  }

  #release(id: ObjectId, path: string): void {
    const holders = this.#holders.get(id);
    holders?.delete(path);
    if (holders?.size === 0) this.#holders.delete(id);
  }

  #entriesOf(id: ObjectId): FileEntry[] {
    const entries: FileEntry[] = [];
    for (const path of this.#holders.get(id) ?? []) {
      const entry = this.#files.get(path);
      if (entry !== undefined) entries.push(entry);
    }
    return entries.sort((a, b) => compareRanks(a.rank, b.rank));
  }

  #deliver(id: ObjectId, event: SourceEvent | undefined): SourceEvent | undefined {
    const last = this.#delivered.get(id);
    if (event?.value !== undefined) {
      if (event === last || isDeepStrictEqual(event, last)) return undefined;
      this.#delivered.set(id, event);
      return event;
    }
    if (last === undefined) return undefined;
    this.#delivered.delete(id);
    return { ...last, value: undefined };
  }

  #conflictOf(id: ObjectId, [first, ...others]: readonly FileEntry[]): Report[] {
    if (first === undefined || others.length === 0) {
      this.#conflicts.delete(id);
      return [];
    }
    const paths = others.map(({ rank }) => rank.path).join(', ');
    const conflict = JSON.stringify([first.rank.path, paths]);
    if (this.#conflicts.get(id) === conflict) return [];
    this.#conflicts.set(id, conflict);
    const message = `${id} is in several manifest files; the first one counts`;
    return [{ level: 'warn', message, fields: { file: first.rank.path, others: paths } }];
  }
}

/** By code units, so that the order is the same everywhere. */
export function compareRanks(a: FileRank, b: FileRank): number {
  return a.source - b.source || (a.path < b.path ? -1 : Number(a.path > b.path));
}
