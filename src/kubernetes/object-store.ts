import { isDeepStrictEqual } from 'node:util';
import type { Log, LogFields } from '../util/log.ts';
import type { Problem } from '../util/untrusted.ts';
import type { Decoded } from './objects/decoded.ts';

/** How to read one kind of object. Both functions take anything and never throw. */
export interface ObjectReader<T> {
  /** As `Service`: for messages. */
  readonly kind: string;
  /** `namespace/name`, as far as the object says it. */
  identify(object: unknown): { readonly key: string } | { readonly problem: Problem };
  decode(object: unknown): Decoded<T>;
}

/** One object's new state; `undefined` means that there is nothing (more) to serve. */
export interface Change<T> {
  readonly key: string;
  readonly value: T | undefined;
}

/** A list that is being received. Objects come one by one, so that none need be kept in its raw form. */
export interface PendingList<T> {
  /** `isGone`: it was deleted while the list was on its way. */
  add(object: unknown, options?: { readonly isGone: boolean }): void;
  /** The list is complete: gives what is different from before. `unconfirmed`: it was empty although there is something. */
  finish(): Change<T>[] | 'unconfirmed';
}

/**
 * What is known of the objects of one kind. A list replaces it, an event changes one object; both give only what is
 * really different. An object that cannot be read keeps its last good state and is reported once.
 */
export class ObjectStore<T> {
  readonly #reader: ObjectReader<T>;
  readonly #log: Log;
  readonly #served = new Map<string, T>();
  /** What has been said of an object, so that it is not said again. */
  readonly #reported = new Map<string, string>();
  /** The last thing heard was an empty list that nobody believed. */
  #doubtsEmptiness = false;

  constructor(reader: ObjectReader<T>, log: Log) {
    this.#reader = reader;
    this.#log = log;
  }

  keys(): Iterable<string> {
    return this.#served.keys();
  }

  /** Nothing is taken over before the list is complete. */
  beginList(): PendingList<T> {
    const keys = new Set<string>();
    const values = new Map<string, T | undefined>();
    return {
      add: (object, { isGone } = { isGone: false }) => {
        const key = this.#identify(object);
        if (key === undefined) return;
        keys.delete(key);
        values.delete(key);
        if (isGone) return;
        keys.add(key);
        const decoded = this.#decode(key, object);
        if (decoded !== KEPT) values.set(key, decoded);
      },
      finish: () => this.#replace(keys, values),
    };
  }

  /** One object was added or modified. */
  change(object: unknown): Change<T> | undefined {
    const key = this.#identify(object);
    if (key === undefined) return undefined;
    const decoded = this.#decode(key, object);
    return decoded === KEPT ? undefined : this.#set(key, decoded);
  }

  /** One object was deleted. Only its name counts: the rest may be as broken as it likes. */
  delete(object: unknown): Change<T> | undefined {
    const key = this.#identify(object);
    if (key === undefined) return undefined;
    this.#reported.delete(key);
    return this.#set(key, undefined);
  }

  #replace(keys: ReadonlySet<string>, values: ReadonlyMap<string, T | undefined>): Change<T>[] | 'unconfirmed' {
    if (keys.size === 0 && this.#served.size > 0 && !this.#doubtsEmptiness) {
      this.#doubtsEmptiness = true;
      return 'unconfirmed';
    }
    this.#doubtsEmptiness = false;

    const changes: Change<T>[] = [];
    for (const key of [...this.#served.keys()]) {
      if (!keys.has(key)) push(changes, this.#set(key, undefined));
    }
    for (const [key, value] of values) push(changes, this.#set(key, value));
    for (const key of this.#reported.keys()) {
      if (!keys.has(key)) this.#reported.delete(key);
    }
    return changes;
  }

  #set(key: string, value: T | undefined): Change<T> | undefined {
    const before = this.#served.get(key);
    if (isDeepStrictEqual(before, value)) return undefined;
    if (value === undefined) this.#served.delete(key);
    else this.#served.set(key, value);
    return { key, value };
  }

  #identify(object: unknown): string | undefined {
    const identity = this.#reader.identify(object);
    if ('key' in identity) return identity.key;
    if (this.#isNews(NAMELESS, [identity.problem])) {
      this.#log.error(
        `An object among the ${this.#reader.kind} objects cannot be told and is left out`,
        fieldsOf(identity.problem),
      );
    }
    return undefined;
  }

  #decode(key: string, object: unknown): T | undefined | typeof KEPT {
    const decoded = this.#reader.decode(object);
    const name = `${this.#reader.kind} ${JSON.stringify(key)}`;
    switch (decoded.status) {
      case 'ok':
        if (this.#isNews(key, decoded.warnings)) {
          for (const warning of decoded.warnings) this.#log.warn(`A part of ${name} is left out`, fieldsOf(warning));
        }
        return decoded.value;
      case 'skipped':
        this.#reported.delete(key);
        return undefined;
      case 'invalid':
        if (this.#isNews(key, [decoded.problem])) {
          const rest = this.#served.has(key) ? 'its last good state is kept' : 'it is left out';
          this.#log.error(`${name} is not valid; ${rest}`, fieldsOf(decoded.problem));
        }
        return KEPT;
    }
  }

  /** Once, until something else is wrong with the object or it was fine in between. */
  #isNews(key: string, problems: readonly Problem[]): boolean {
    if (problems.length === 0) {
      this.#reported.delete(key);
      return false;
    }
    const all = JSON.stringify(problems);
    if (this.#reported.get(key) === all) return false;
    this.#reported.set(key, all);
    return true;
  }
}

function fieldsOf({ field, problem }: Problem): LogFields {
  return { field, err: problem };
}

/** The object is there, and what is served of it does not change. */
const KEPT = Symbol('kept');

/** Stands for all objects without a name: they cannot be told from each other. */
const NAMELESS = '';

function push<T>(changes: Change<T>[], change: Change<T> | undefined): void {
  if (change !== undefined) changes.push(change);
}
