import { isIP } from 'node:net';
import type { Address } from '../../model/address.ts';
import type { Parcel } from '../../model/hand-over.ts';

/*
 * How values go into a parcel and come out of it. What arrives is of the same program, yet perhaps of another version of
 * it, and its word alone must not lead to a wrong descriptor or an endless loop: whatever is read is checked.
 */

/** One kind of value: as what survives JSON, with its descriptors and bytes beside it. */
export interface Format<T> {
  write(value: T, to: Packing): unknown;
  /** Throws an Error that names `what`. */
  read(value: unknown, from: Contents, what: string): T;
}

export interface Packing {
  readonly fds: number[];
  readonly bytes: Uint8Array[];
}

/** Gives out a parcel's descriptors and bytes in the order in which they were put in. */
export class Contents {
  readonly #parcel: Parcel;
  #fds = 0;
  #bytes = 0;

  constructor(parcel: Parcel) {
    this.#parcel = parcel;
  }

  fd(): number {
    const fd = this.#parcel.fds[this.#fds++];
    if (fd === undefined) throw new Error(`a parcel has too few descriptors, ${this.#parcel.fds.length}`);
    return fd;
  }

  bytes(length: number): Uint8Array {
    const { bytes } = this.#parcel;
    if (length > bytes.length - this.#bytes) throw new Error(`a parcel has too few bytes, ${bytes.length}`);
    this.#bytes += length;
    // A copy: on its way to a worker a part would take all the memory along that it is part of.
    return new Uint8Array(bytes.subarray(this.#bytes - length, this.#bytes));
  }

  /** Everything must have been asked for. */
  end(): void {
    const { fds, bytes } = this.#parcel;
    if (this.#fds !== fds.length) throw new Error(`a parcel has ${fds.length} descriptors and speaks of ${this.#fds}`);
    if (this.#bytes !== bytes.length) {
      throw new Error(`a parcel has ${bytes.length} bytes and speaks of ${this.#bytes}`);
    }
  }
}

/** What JSON keeps as it is. */
function plain<T>(expected: string, isOne: (value: unknown) => boolean): Format<T> {
  return {
    write: (value) => value,
    read: (value, _, what) => {
      if (!isOne(value)) throw new Error(`${what} is not ${expected}`);
      return value as T;
    },
  };
}

export const FLAG = plain<boolean>('true or false', (value) => typeof value === 'boolean');
export const AMOUNT = plain<number>('a number from 0 on', (value) => Number.isFinite(value) && (value as number) >= 0);
export const ADDRESS = plain<Address>('an IP address', (value) => {
  return typeof value === 'string' && isIP(value) !== 0 && !value.includes('%');
});

export function whole(min = 0, max = Number.MAX_SAFE_INTEGER): Format<number> {
  return plain(`a whole number from ${min} to ${max}`, (value) => {
    return Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max;
  });
}

export function text<T extends string>(pattern: RegExp): Format<T> {
  return plain(`a text like ${pattern.source}`, (value) => typeof value === 'string' && pattern.test(value));
}

export function oneOf<T extends string>(...choice: readonly T[]): Format<T> {
  return plain(`one of ${choice.join(', ')}`, (value) => choice.includes(value as T));
}

/** Nothing but a descriptor. */
export const FD: Format<number> = {
  write: (fd, to) => void to.fds.push(fd),
  read: (_, from) => from.fd(),
};

/** Few bytes, in the text. */
export function base64(pattern: RegExp): Format<Uint8Array> {
  const encoded = text(pattern);
  return {
    write: (bytes) => Buffer.from(bytes).toString('base64'),
    read: (value, from, what) => new Uint8Array(Buffer.from(encoded.read(value, from, what), 'base64')),
  };
}

/** Any number of bytes, beside the text. */
export const BYTES: Format<Uint8Array> = {
  write: (bytes, to) => {
    to.bytes.push(bytes);
    return bytes.length;
  },
  read: (value, from, what) => from.bytes(whole(1).read(value, from, what)),
};

export function optional<T>(format: Format<T>): Format<T | undefined> {
  return {
    write: (value, to) => (value === undefined ? undefined : format.write(value, to)),
    read: (value, from, what) => (value === undefined ? undefined : format.read(value, from, what)),
  };
}

export function listOf<T>(format: Format<T>): Format<readonly T[]> {
  return {
    write: (list, to) => list.map((each) => format.write(each, to)),
    read: (value, from, what) => {
      if (!Array.isArray(value)) throw new Error(`${what} is not a list`);
      return value.map((each, i) => format.read(each, from, `${what}[${i}]`));
    },
  };
}

/** A list with one format for each place. */
export function tuple<T extends readonly unknown[]>(...formats: { readonly [I in keyof T]: Format<T[I]> }): Format<T> {
  return {
    write: (values, to) => formats.map((format, i) => format.write(values[i], to)),
    read: (value, from, what) => {
      if (!Array.isArray(value)) throw new Error(`${what} is not a list`);
      return formats.map((format, i) => format.read(value[i], from, `${what}[${i}]`)) as unknown as T;
    },
  };
}

/** An object by the names of its fields. */
export function mapOf<T>(format: Format<T>): Format<ReadonlyMap<string, T>> {
  return {
    write: (map, to) => Object.fromEntries(Array.from(map, ([key, each]) => [key, format.write(each, to)])),
    read: (value, from, what) => {
      const given = Object.entries(fieldsOf(value, what));
      return new Map(given.map(([key, each]) => [key, format.read(each, from, `${what}.${key}`)]));
    },
  };
}

/** An object with these fields, in this order. Others are left out, and not looked at. */
export function object<T extends object>(shape: { readonly [K in keyof T]-?: Format<T[K]> }): Format<T> {
  const fields = Object.entries(shape) as [string, Format<unknown>][];
  return {
    write: (value, to) =>
      Object.fromEntries(fields.map(([name, format]) => [name, format.write(value[name as keyof T], to)])),
    read: (value, from, what) => {
      const given = fieldsOf(value, what);
      return Object.fromEntries(
        fields.map(([name, format]) => [name, format.read(given[name], from, `${what}.${name}`)]),
      ) as T;
    },
  };
}

export function fieldsOf(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${what} is not an object`);
  return value as Readonly<Record<string, unknown>>;
}
