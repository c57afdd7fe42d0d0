import type { FileObject, ObjectId } from './file-state.ts';

/** The files that name one object. Nearly always it is one, and a list for each would take memory. */
type Namings = FileObject | readonly FileObject[];

/**
 * All objects that files name, and which file counts of several: the first one that has a state of the object. Work is
 * in proportion to what changes.
 */
export class NamedObjects {
  readonly #named = new Map<ObjectId, Namings>();
  /** What counted at the last {@link takeChanges}, of each object that has changed since. */
  #changes = new Map<ObjectId, FileObject | undefined>();

  /** A file names other objects than before, or other states of them. */
  replace(before: readonly FileObject[], after: readonly FileObject[]): void {
    const old = new Map(before.map((each) => [each.id, each]));
    for (const object of after) {
      const last = old.get(object.id);
      old.delete(object.id);
      if (last === undefined || last.event !== object.event) this.#note(object.id);
      this.#put(object.id, last, object);
    }
    for (const [id, last] of old) {
      this.#note(id);
      this.#put(id, last, undefined);
    }
  }

  /**
   * What may have changed since the last call, each with what counted then. `order`: the files, the first one first.
   */
  takeChanges(order: () => Iterable<string>): ReadonlyMap<ObjectId, FileObject | undefined> {
    const changes = this.#changes;
    this.#changes = new Map();
    let ranks: ReadonlyMap<string, number> | undefined;
    for (const id of changes.keys()) {
      const namings = this.#named.get(id);
      if (namings === undefined || !isSeveral(namings)) continue;
      ranks ??= new Map([...order()].map((file, rank) => [file, rank]));
      const rankOf = ({ file }: FileObject) => ranks?.get(file) ?? Number.POSITIVE_INFINITY;
      this.#named.set(
        id,
        namings.toSorted((a, b) => rankOf(a) - rankOf(b)),
      );
    }
    return changes;
  }

  /** The one that counts. */
  get(id: ObjectId): FileObject | undefined {
    return this.#withState(id)[0];
  }

  /** Those that have a state of the object, and do not count. */
  othersOf(id: ObjectId): readonly FileObject[] {
    return this.#withState(id).slice(1);
  }

  /** Whether a file names it, be it valid or not. */
  isNamed(id: ObjectId): boolean {
    return this.#named.has(id);
  }

  /** Those that count. */
  *[Symbol.iterator](): Generator<FileObject> {
    for (const id of this.#named.keys()) {
      const object = this.get(id);
      if (object !== undefined) yield object;
    }
  }

  #withState(id: ObjectId): readonly FileObject[] {
    return namingsOf(this.#named.get(id)).filter(({ event }) => event !== undefined);
  }

  #note(id: ObjectId): void {
    if (!this.#changes.has(id)) this.#changes.set(id, this.get(id));
  }

  #put(id: ObjectId, before: FileObject | undefined, after: FileObject | undefined): void {
    const known = namingsOf(this.#named.get(id));
    // In its place: the order is only looked at again where something has changed.
    const namings = before === undefined ? [...known, after] : known.map((each) => (each === before ? after : each));
    const [only, ...more] = namings.filter((each) => each !== undefined);
    if (only === undefined) this.#named.delete(id);
    else this.#named.set(id, more.length === 0 ? only : [only, ...more]);
  }
}

function isSeveral(namings: Namings): namings is readonly FileObject[] {
  return Array.isArray(namings);
}

function namingsOf(namings: Namings | undefined): readonly FileObject[] {
  if (namings === undefined) return [];
  return isSeveral(namings) ? namings : [namings];
}
