import { type Found, foundText } from './found.ts';

/** What is wrong with one field of an untrusted object, in words for the person who must fix it. */
export interface Problem extends Found {
  /** As `spec.ports[1].nodePort`; empty for the object as a whole. */
  readonly field: string;
  /** It goes on where the name of the field ends. Values are quoted and cut, so it is one short line. */
  readonly found: string;
}

export class FieldError extends Error {
  override readonly name = 'FieldError';
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.field === '' ? foundText(problem) : `${problem.field} ${foundText(problem)}`);
    this.problem = problem;
  }
}

const SHOWN_CHARACTERS = 100;

/** A value for a message. Lists and objects are only named: they may be huge, deep or, from YAML aliases, both. */
export function show(value: unknown): string {
  if (typeof value === 'string') {
    const cut = value.length > SHOWN_CHARACTERS;
    return JSON.stringify(cut ? value.slice(0, SHOWN_CHARACTERS) : value) + (cut ? '…' : '');
  }
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? 'a list' : 'an object';
  return String(value);
}

/**
 * One value inside an untrusted object, with its path. Each reader returns a value of its type or throws
 * {@link FieldError}. Null counts as absent, as in the API server's own decoder (Go `encoding/json`).
 */
export class Field {
  readonly value: unknown;
  readonly #parent: Field | undefined;
  readonly #step: string | number;

  private constructor(value: unknown, parent: Field | undefined, step: string | number) {
    this.value = value ?? undefined;
    this.#parent = parent;
    this.#step = step;
  }

  static root(object: unknown): Field {
    return new Field(object, undefined, '');
  }

  get isPresent(): boolean {
    return this.value !== undefined;
  }

  /** Built on demand: few fields are ever reported. */
  get path(): string {
    const steps: string[] = [];
    for (let at: Field = this; at.#parent !== undefined; at = at.#parent) steps.push(printStep(at.#step));
    return steps.reverse().join('').replace(/^\./, '');
  }

  /** A field of this object; of an absent object every field is absent. */
  get(name: string): Field {
    if (!this.isPresent) return new Field(undefined, this, name);
    if (typeof this.value !== 'object' || Array.isArray(this.value)) throw this.wrong('expected an object');
    // No name from the data may reach Object.prototype.
    const value = Object.hasOwn(this.value as object, name) ? (this.value as Record<string, unknown>)[name] : undefined;
    return new Field(value, this, name);
  }

  /** Whether this object has the field at all, even if it is null. */
  has(name: string): boolean {
    this.get(name);
    return this.isPresent && Object.hasOwn(this.value as object, name);
  }

  /** The elements of this list; none when it is absent. */
  items(): Field[] {
    if (!this.isPresent) return [];
    if (!Array.isArray(this.value)) throw this.wrong('expected a list');
    return this.value.map((item, index) => new Field(item, this, index));
  }

  string(): string {
    if (typeof this.value !== 'string') throw this.wrong('expected a string');
    return this.value;
  }

  stringOr(fallback: string): string {
    return this.isPresent ? this.string() : fallback;
  }

  integer(min: number, max: number): number {
    if (!Number.isInteger(this.value) || (this.value as number) < min || (this.value as number) > max) {
      throw this.wrong(`expected an integer from ${min} to ${max}`);
    }
    return this.value as number;
  }

  booleanOr<T extends boolean | undefined>(fallback: T): boolean | T {
    if (!this.isPresent) return fallback;
    if (typeof this.value !== 'boolean') throw this.wrong('expected true or false');
    return this.value;
  }

  /** One of `allowed`. */
  oneOf<T extends string>(allowed: readonly T[]): T {
    const found = allowed.find((name) => name === this.value);
    if (found === undefined) throw this.wrong(`expected ${allowed.join(', ').replace(/, ([^,]*)$/, ' or $1')}`);
    return found;
  }

  /** The error that says what this field holds and what was expected of it. */
  wrong(expected: string): FieldError {
    return this.error(`is ${this.isPresent ? show(this.value) : 'missing'}`, expected);
  }

  error(found: string, advice?: string): FieldError {
    return new FieldError({ field: this.path, found, ...(advice !== undefined && { advice }) });
  }
}

function printStep(step: string | number): string {
  if (typeof step === 'number') return `[${step}]`;
  return /^\w+$/.test(step) ? `.${step}` : `[${step}]`;
}

/** `undefined` for text that is not JSON: the parser's own message quotes what may be secret, huge or meaningless. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A list is none. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
