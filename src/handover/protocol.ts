/*
 * What predecessor and successor say to each other over a socket that only they have:
 *
 *   successor                                     predecessor
 *   started; knows the Services      ── hello ──▶ chooses a version, stops its control plane, freezes its data plane
 *   takes over, touching nothing     ◀─ begin ──
 *                                    ◀─ parcel ── (any number)
 *                                    ◀─ end ─────
 *                                    ── adopted ▶ from here on there are two who could go on, and it decides who
 *   goes on                          ◀ released ─ ends
 *
 * A predecessor that dies before `released` has not touched anything either: its end of the socket closes, and that says
 * the same. A successor that cannot take over says `failed`, and is killed before the predecessor goes on.
 */

/** Tells a process that it is a successor, and by which descriptor it reaches its predecessor. */
export const CHANNEL_VARIABLE = 'KUBE_USERSPACE_PROXY_HANDOVER_FD';

/** Which forms of messages and parcels this program reads and writes, best first. */
export const VERSIONS: readonly number[] = [1];

export type Message =
  | { readonly kind: 'hello'; readonly versions: readonly number[]; readonly program: string }
  | { readonly kind: 'begin'; readonly version: number }
  /** With the parcel's descriptors and bytes. */
  | { readonly kind: 'parcel'; readonly value: unknown }
  | { readonly kind: 'end'; readonly parcels: number }
  | { readonly kind: 'adopted' }
  | { readonly kind: 'failed'; readonly err: string }
  | { readonly kind: 'released' };

export type MessageOf<Kind extends Message['kind']> = Extract<Message, { kind: Kind }>;

const MAX_TEXT = 2000;

/** Throws an Error that says what is wrong with the message. */
export function readMessage(value: unknown): Message {
  if (typeof value !== 'object' || value === null) throw new Error('a message of the hand-over is not an object');
  const { kind, versions, program, version, parcels, err, value: content } = value as Readonly<Record<string, unknown>>;
  switch (kind) {
    case 'hello':
      if (!Array.isArray(versions) || !versions.every(Number.isSafeInteger)) throw wrong(kind, 'versions');
      return { kind, versions, program: textOf(kind, 'program', program) };
    case 'begin':
      return { kind, version: numberOf(kind, 'version', version) };
    case 'parcel':
      return { kind, value: content };
    case 'end':
      return { kind, parcels: numberOf(kind, 'parcels', parcels) };
    case 'failed':
      return { kind, err: textOf(kind, 'err', err) };
    case 'adopted':
    case 'released':
      return { kind };
    default:
      throw new Error('a message of the hand-over is of no known kind');
  }
}

/** The version that both know, as the writer of parcels prefers; `undefined` without one. */
export function commonVersion(others: readonly number[]): number | undefined {
  return VERSIONS.find((version) => others.includes(version));
}

function numberOf(kind: string, field: string, value: unknown): number {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw wrong(kind, field);
  return value as number;
}

function textOf(kind: string, field: string, value: unknown): string {
  if (typeof value !== 'string') throw wrong(kind, field);
  return value.slice(0, MAX_TEXT);
}

function wrong(kind: string, field: string): Error {
  return new Error(`a message "${kind}" of the hand-over has no sound "${field}"`);
}
