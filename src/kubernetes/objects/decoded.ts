import { type Field, FieldError, type Problem } from '../../util/untrusted.ts';

/** What came of reading one API object. */
export type Decoded<T> =
  | {
      readonly status: 'ok';
      readonly value: T;
      /** Parts that were left out, such as one bad endpoint address; the rest is served. */
      readonly warnings: readonly Problem[];
    }
  | {
      /** Not for this proxy to serve, and nothing is wrong with that. */
      readonly status: 'skipped';
      readonly reason: string;
    }
  | { readonly status: 'invalid'; readonly problem: Problem };

/** What a decoder returns in place of a value when the object is not to be served. */
export class Skip {
  readonly reason: string;

  constructor(reason: string) {
    this.reason = reason;
  }
}

/** Runs a decoder that throws {@link FieldError}; anything else it throws is a defect and goes on to the caller. */
export function decoding<T>(decoder: (warnings: Warnings) => T | Skip): Decoded<T> {
  const warnings = new Warnings();
  try {
    const result = decoder(warnings);
    return result instanceof Skip
      ? { status: 'skipped', reason: result.reason }
      : { status: 'ok', value: result, warnings: warnings.list() };
  } catch (error) {
    if (error instanceof FieldError) return { status: 'invalid', problem: error.problem };
    throw error;
  }
}

const MAX_WARNINGS = 8;

/** Collects what was left out of an object; the first few in full, for there may be thousands. */
export class Warnings {
  readonly #problems: Problem[] = [];
  #more = 0;

  /**
   * Decodes each item and leaves out those that are wrong. The list is exactly as long as it says: one that has grown
   * holds room for 17, and there are tens of thousands of lists with one or two.
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
