import { type Field, FieldError, type Problem } from '../../util/untrusted.ts';

/** The result of reading one API object. */
export type Decoded<T> =
  | {
      readonly status: 'ok';
      readonly value: T;
      /** Parts that were left out, such as one bad endpoint address; the rest is served. */
      readonly warnings: readonly Problem[];
    }
  /** Not for this proxy to serve, and nothing is wrong with that. */
  | { readonly status: 'skipped'; readonly reason: string }
  | { readonly status: 'invalid'; readonly problem: Problem };

/** Thrown by a decoder when the object is not to be served. */
export class Skip extends Error {}

/** Runs a decoder that may throw {@link FieldError} or {@link Skip}; any other error is a defect and is thrown on. */
export function decoding<T>(decoder: (warnings: Warnings) => T): Decoded<T> {
  const warnings = new Warnings();
  try {
    return { status: 'ok', value: decoder(warnings), warnings: warnings.list() };
  } catch (error) {
    if (error instanceof FieldError) return { status: 'invalid', problem: error.problem };
    if (error instanceof Skip) return { status: 'skipped', reason: error.message };
    throw error;
  }
}

const MAX_WARNINGS = 8;

/** Collects what was left out of an object: the first few in full, because there may be thousands. */
export class Warnings {
  readonly #problems: Problem[] = [];
  #more = 0;

  /**
   * Decodes each item and leaves out those that are wrong. The list is cut to its length: a list that has grown has
   * room for 17 items, and there are tens of thousands of lists with one or two.
   */
  keepValid<T>(items: readonly Field[], decode: (item: Field) => T): T[] {
    const kept: T[] = [];
    for (const item of items) this.optional(() => kept.push(decode(item)));
    return kept.slice();
  }

  /** Gives what `decode` gives; `undefined` when that part is wrong, which adds a warning. */
  optional<T>(decode: () => T): T | undefined {
    try {
      return decode();
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      this.add(error.problem);
      return undefined;
    }
  }

  add(problem: Problem): void {
    if (this.#problems.length < MAX_WARNINGS) this.#problems.push(problem);
    else this.#more += 1;
  }

  list(): readonly Problem[] {
    if (this.#more === 0) return this.#problems;
    return [...this.#problems, { field: '', problem: `has ${this.#more} more parts that are left out` }];
  }
}
