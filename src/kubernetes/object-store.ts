import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../util/clock.ts';
import type { Log, LogFields } from '../util/log.ts';
import { Ration } from '../util/ration.ts';
import { FieldError, type Problem } from '../util/untrusted.ts';
import type { Decoded } from './objects/decoded.ts';

/** How to read one kind of object. Both functions accept anything. */
export interface ObjectReader<T> {
  /** As `Service`: for messages. */
  readonly kind: string;
  /** `namespace/name`. Throws {@link FieldError}. */
  identify(object: unknown): string;
  /** Never throws. */
  decode(object: unknown): Decoded<T>;
}

/** One object's new state; `undefined` means that there is nothing (more) to serve. */
export interface Change<T> {
  readonly key: string;
  readonly value: T | undefined;
}

/** A list that is being received. It takes objects one by one, so that none is kept in its raw form. */
export interface PendingList<T> {
  /** `isGone`: it was deleted while the list was on its way. */
  add(object: unknown, options?: { readonly isGone: boolean }): void;
  /** The list is complete: gives the differences. `unconfirmed`: it is empty although there were objects. */
  finish(): Change<T>[] | 'unconfirmed';
}

/** The object exists and keeps its last good state. */
const KEPT = Symbol('kept');

/** Stands for all objects without a name, because they cannot be distinguished. */
const NAMELESS = '';

/** With the line that says so, ten lines. */
const LINES_ABOUT_ONE = { burst: 9, intervalMs: 600_000 };

/**
 * The objects of one kind. A list replaces all, an event changes one; both give only real differences. An object that
 * cannot be read keeps its last good state and is reported once.
 */
export class ObjectStore<T> {
  readonly #reader: ObjectReader<T>;
  readonly #log: Log;
  readonly #ration: Ration<string>;
  readonly #served = new Map<string, T>();
  /** The problems of an object that were reported, so that they are reported once. */
  readonly #reported = new Map<string, readonly Problem[]>();
  /** The last list was empty and did not take effect. */
  #doubtsEmptiness = false;

  constructor(reader: ObjectReader<T>, log: Log, clock: Clock) {
    this.#reader = reader;
    this.#log = log;
    this.#ration = new Ration({ clock, ...LINES_ABOUT_ONE });
  }

  keys(): Iterable<string> {
    return this.#served.keys();
  }

  has(key: string): boolean {
    return this.#served.has(key);
  }

  /** Those that are left out, as they are not valid. */
  *leftOut(): Generator<{ readonly key: string; readonly problem: Problem }> {
    for (const [key, problems] of this.#reported) {
      const [problem] = problems;
      if (key !== NAMELESS && !this.#served.has(key) && problem !== undefined) yield { key, problem };
    }
  }

  beginList(): PendingList<T> {
    const listed = new Map<string, T | undefined | typeof KEPT>();
    return {
      add: (object, { isGone } = { isGone: false }) => {
        const key = this.#identify(object);
        if (key === undefined) return;
        listed.delete(key);
        if (!isGone) listed.set(key, this.#decode(key, object));
      },
      finish: () => this.#replace(listed),
    };
  }

  change(object: unknown): Change<T> | undefined {
    const key = this.#identify(object);
    return key === undefined ? undefined : this.#set(key, this.#decode(key, object));
  }

  /** Only the name of the object needs to be valid. */
  delete(object: unknown): Change<T> | undefined {
    const key = this.#identify(object);
    if (key === undefined) return undefined;
    this.#reported.delete(key);
    return this.#set(key, undefined);
  }

  #replace(listed: ReadonlyMap<string, T | undefined | typeof KEPT>): Change<T>[] | 'unconfirmed' {
    this.#doubtsEmptiness = listed.size === 0 && this.#served.size > 0 && !this.#doubtsEmptiness;
    if (this.#doubtsEmptiness) return 'unconfirmed';
    const gone = [...this.#served.keys()].filter((key) => !listed.has(key));
    for (const key of this.#reported.keys()) if (!listed.has(key)) this.#reported.delete(key);
    return [
      ...gone.flatMap((key) => this.#set(key, undefined) ?? []),
      ...[...listed].flatMap(([key, value]) => this.#set(key, value) ?? []),
    ];
  }

  #set(key: string, value: T | undefined | typeof KEPT): Change<T> | undefined {
    if (value === KEPT || isDeepStrictEqual(this.#served.get(key), value)) return undefined;
    if (value === undefined) this.#served.delete(key);
    else this.#served.set(key, value);
    return { key, value };
  }

  #identify(object: unknown): string | undefined {
    try {
      return this.#reader.identify(object);
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      if (!this.#isNews(NAMELESS, [error.problem])) return undefined;
      const message = `An object among the ${this.#reader.kind} objects does not say which one it is and is left out`;
      this.#log.error(message, fieldsOf(error.problem));
      return undefined;
    }
  }

  #decode(key: string, object: unknown): T | undefined | typeof KEPT {
    const decoded = this.#reader.decode(object);
    const name = `${this.#reader.kind} ${JSON.stringify(key)}`;
    switch (decoded.status) {
      case 'ok':
        if (this.#isNews(key, decoded.warnings)) {
          for (const warning of decoded.warnings) {
            this.#write('warn', key, `A part of ${name} is left out`, fieldsOf(warning));
          }
        }
        return decoded.value;
      case 'skipped':
        this.#reported.delete(key);
        return undefined;
      case 'invalid':
        if (this.#isNews(key, [decoded.problem])) {
          const rest = this.#served.has(key) ? 'its last good state is kept' : 'it is left out';
          this.#write('error', key, `${name} is not valid; ${rest}`, fieldsOf(decoded.problem));
        }
        return KEPT;
    }
  }

  /** An object that changes again and again cannot fill the log. */
  #write(level: 'warn' | 'error', key: string, message: string, fields: LogFields): void {
    const taken = this.#ration.take(key);
    if (taken === 'allowed') this.#log[level](message, fields);
    if (taken === 'first refusal') {
      const name = `${this.#reader.kind} ${JSON.stringify(key)}`;
      this.#log.warn(`More lines about ${name} are not shown; one in ten minutes is`);
    }
  }

  /** Whether these problems have not been reported since the object was last fine or had other problems. */
  #isNews(key: string, problems: readonly Problem[]): boolean {
    const before = this.#reported.get(key);
    if (problems.length === 0) {
      this.#reported.delete(key);
      return false;
    }
    this.#reported.set(key, problems);
    return !isDeepStrictEqual(problems, before);
  }
}

function fieldsOf(problem: Problem): LogFields {
  return { field: problem.field, err: problem };
}
