import { isIP } from 'node:net';
import type { Parcel } from '../../contracts/hand-over.ts';
import type { Address } from '../../model/address.ts';
import type { Endpoint } from '../../model/endpoint.ts';

/*
 * Reading what another process has sent. It is the same program, yet perhaps another version of it, and its word alone
 * must not lead to a wrong descriptor or an endless loop. Everything here throws an Error that names the field.
 */

export type Fields = Readonly<Record<string, unknown>>;

export function fields(value: unknown, what: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong(what, 'an object');
  return value as Fields;
}

export function list(value: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw wrong(what, 'a list');
  return value;
}

export function whole(value: unknown, what: string, { min = 0, max = Number.MAX_SAFE_INTEGER } = {}): number {
  if (!Number.isSafeInteger(value) || (value as number) < min || (value as number) > max) {
    throw wrong(what, `a whole number from ${min} to ${max}`);
  }
  return value as number;
}

export function amount(value: unknown, what: string): number {
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0) throw wrong(what, 'a number from 0 on');
  return value;
}

export function flag(value: unknown, what: string): boolean {
  if (typeof value !== 'boolean') throw wrong(what, 'true or false');
  return value;
}

export function text(value: unknown, what: string, pattern: RegExp): string {
  if (typeof value !== 'string' || !pattern.test(value)) throw wrong(what, `a text like ${pattern.source}`);
  return value;
}

export function oneOf<T extends string>(value: unknown, what: string, choice: readonly T[]): T {
  if (!choice.includes(value as T)) throw wrong(what, `one of ${choice.join(', ')}`);
  return value as T;
}

export function address(value: unknown, what: string): Address {
  if (typeof value !== 'string' || isIP(value) === 0 || value.includes('%')) throw wrong(what, 'an IP address');
  return value as Address;
}

/** Written as `[address, port]`. */
export function endpoint(value: unknown, what: string): Endpoint {
  const [host, port] = list(value, what);
  return { address: address(host, `the address of ${what}`), port: whole(port, `the port of ${what}`, PORT) };
}

export const PORT = { min: 1, max: 65_535 } as const;

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
    if (this.#bytes !== bytes.length)
      throw new Error(`a parcel has ${bytes.length} bytes and speaks of ${this.#bytes}`);
  }
}

function wrong(what: string, expected: string): Error {
  return new Error(`${what} is not ${expected}`);
}
