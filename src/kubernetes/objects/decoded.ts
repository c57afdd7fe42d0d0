import type { IpFamily } from '../../model/address.ts';
import { type Field, FieldError, type Problem } from '../../util/untrusted.ts';

/** The result of reading one API object. */
export type Decoded<T> =
  | {
      readonly status: 'ok';
      readonly value: T;
      /** Parts that were left out, such as one bad endpoint address; the rest is served. */
      readonly warnings: readonly Problem[];
    }
  /** Valid, but not to be served by this proxy. `problem`: what would be a mistake in an object written by hand. */
  | { readonly status: 'skipped'; readonly reason: string; readonly problem?: Problem }
  | { readonly status: 'invalid'; readonly problem: Problem };

/** What an object in a file may say, or leave out, other than one of an API server. */
export interface FileRules {
  /** The families in which Services without a cluster IP get one, their default first; empty: in none. */
  readonly clusterIpFamilies: readonly IpFamily[];
  /** Endpoints may be loopback addresses of this machine. */
  readonly loopbackEndpoints: boolean;
}

/** Thrown by a decoder when the object is not to be served. */
export class Skip extends Error {
  readonly problem: Problem | undefined;

  constructor(reason: string, problem?: Problem) {
    super(reason);
    this.problem = problem;
  }
}

/** Runs a decoder that may throw {@link FieldError} or {@link Skip}; any other error is a defect and is thrown on. */
export function decoding<T>(decoder: (warnings: Warnings) => T): Decoded<T> {
  const warnings = new Warnings();
  try {
    return { status: 'ok', value: decoder(warnings), warnings: warnings.list() };
  } catch (error) {
    if (error instanceof FieldError) return { status: 'invalid', problem: error.problem };
    if (error instanceof Skip) {
      const { message: reason, problem } = error;
      return { status: 'skipped', reason, ...(problem !== undefined && { problem }) };
    }
    throw error;
  }
}

const MAX_WARNINGS = 8;

/** The parts that were left out of an object. Only the first few are kept in full. */
export class Warnings {
  readonly #problems: Problem[] = [];
  #more = 0;

  /** Decodes each item and leaves out bad items. slice() drops the spare capacity of lists that have grown. */
  keepValid<T>(items: readonly Field[], decode: (item: Field) => T): T[] {
    const kept: T[] = [];
    for (const item of items) this.optional(() => kept.push(decode(item)));
    return kept.slice();
  }

  /** `undefined`, with a warning, when this part is wrong. */
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
    return [...this.#problems, { field: '', found: `has ${this.#more} more parts that are left out` }];
  }
}
