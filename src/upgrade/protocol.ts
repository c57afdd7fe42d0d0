import { parseAddress } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';

/*
 * What predecessor and successor say to each other over a socket that only they have:
 *
 *   successor                                     predecessor
 *                                    ◀─ hello ─── says so before it starts the successor, which finds it there
 *   started; knows the Services      ── hello ──▶ chooses a version, stops its control plane, freezes its data plane
 *   takes over, touching nothing     ◀─ begin ──
 *                                    ◀─ parcel ── (any number)
 *                                    ◀─ end ─────
 *                                    ── adopted ▶ from here on there are two who could go on, and it decides who
 *                                    ◀ released ─
 *   touches everything               ── owning ─▶ from here on it cannot go on with connections any more
 *   all of it is at work             ── serving ▶ has it supervised in its own place
 *   is supervised, and says so       ◀ (closed) ─ ends
 *
 * A predecessor that dies after `end` has not touched anything since: its end of the socket closes, and that says
 * `released` and all that follows. A successor that cannot take over says `failed`. Whenever one fails, it is killed before
 * the predecessor goes on: with everything, unless it had said `owning`; then with the listeners, which nobody can have
 * spoilt.
 */

/** Tells a process that it is a successor, and by which descriptor it reaches its predecessor. */
export const CHANNEL_VARIABLE = 'KUBE_USERSPACE_PROXY_HANDOVER_FD';

/** Which forms of messages and parcels this program reads and writes, best first. */
export const VERSIONS: readonly number[] = [2];

export type Message =
  | { readonly kind: 'hello'; readonly versions: readonly number[]; readonly program: string }
  /** `drained`: endpoints that an operator has taken out. Absent from programs that do not know of it. */
  | { readonly kind: 'begin'; readonly version: number; readonly drained?: readonly Endpoint[] }
  /** With the parcel's descriptors and bytes. */
  | { readonly kind: 'parcel'; readonly value: unknown }
  | { readonly kind: 'end'; readonly parcels: number }
  | { readonly kind: 'adopted' }
  | { readonly kind: 'failed'; readonly err: string }
  | { readonly kind: 'released' }
  | { readonly kind: 'owning' }
  | { readonly kind: 'serving' };

export type MessageOf<Kind extends Message['kind']> = Extract<Message, { kind: Kind }>;

const MAX_TEXT = 2000;

/** Throws an Error that says what is wrong with the message. */
export function readMessage(value: unknown): Message {
  if (typeof value !== 'object' || value === null) throw new Error('a message of the hand-over is not an object');
  const message = value as Readonly<Record<string, unknown>>;
  const { kind, versions, program, version, drained = [], parcels, err, value: content } = message;
  switch (kind) {
    case 'hello':
      if (!Array.isArray(versions) || !versions.every(Number.isSafeInteger)) throw wrong(kind, 'versions');
      return { kind, versions, program: textOf(kind, 'program', program) };
    case 'begin':
      return { kind, version: numberOf(kind, 'version', version), drained: endpointsOf(kind, drained) };
    case 'parcel':
      return { kind, value: content };
    case 'end':
      return { kind, parcels: numberOf(kind, 'parcels', parcels) };
    case 'failed':
      return { kind, err: textOf(kind, 'err', err) };
    case 'adopted':
    case 'released':
    case 'owning':
    case 'serving':
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

function endpointsOf(kind: string, value: unknown): readonly Endpoint[] {
  if (!Array.isArray(value)) throw wrong(kind, 'drained');
  return value.map((each) => endpointOf(kind, each));
}

function endpointOf(kind: string, value: unknown): Endpoint {
  const { address, port } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const parsed = typeof address === 'string' ? parseAddress(address) : undefined;
  const isPort = Number.isSafeInteger(port) && (port as number) >= 1 && (port as number) <= 65_535;
  if (parsed === undefined || !isPort) throw wrong(kind, 'drained');
  return { address: parsed, port: port as number };
}

function wrong(kind: string, field: string): Error {
  return new Error(`a message "${kind}" of the hand-over has no sound "${field}"`);
}
