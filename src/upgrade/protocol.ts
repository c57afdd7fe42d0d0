import { parseAddress } from '../model/address.ts';
import type { SetWeight } from '../model/endpoint.ts';
import { MAX_WEIGHT } from '../model/scheduler.ts';
import type { Unusable } from '../model/source.ts';
import { isObject } from '../util/untrusted.ts';

/*
 * What predecessor and successor say to each other over a socket that only they have:
 *
 *   successor                                     predecessor
 *                                    ◀─ hello ─── sent before it starts the successor, which finds it in the socket
 *   started; knows the Services      ── hello ──▶ refuses when something that it serves cannot be used; else stops its
 *                                                 control plane, and freezes its data plane
 *   takes over, touching nothing     ◀─ begin ──
 *                                    ◀─ parcel ── (any number)
 *                                    ◀─ end ─────
 *                                    ── adopted ▶ from now on both could go on, and the predecessor decides which does
 *                                    ◀ released ─
 *   touches everything               ── owning ─▶ from now on the predecessor cannot go on with connections
 *   all of it is at work             ── serving ▶ makes the successor the supervised process
 *   is supervised, and says so       ◀ (closed) ─ ends
 *
 * A predecessor that dies after `end` has not touched anything since: its end of the socket closes, and that means
 * `released` and all that follows. A successor that cannot take over says `failed`. Whenever a successor fails, it is
 * killed before the predecessor goes on: with everything, unless the successor had said `owning`; then only with the
 * listeners, which nobody can have damaged.
 */

/** Tells a process that it is a successor, and by which descriptor it reaches its predecessor. */
export const CHANNEL_VARIABLE = 'KUBE_USERSPACE_PROXY_HANDOVER_FD';

/** The version of messages and parcels that this program sends. A successor that does not read it is refused. */
export const FORMAT = 5;

/** Those that it reads. For 4 see src/engine/fast/format-4.ts. */
export const FORMATS: readonly number[] = [4, FORMAT];

/** The fields of each kind of message. `hello` only ever gets more fields, so that any two versions understand it. */
interface Fields {
  /**
   * `unusable`: parts of the successor's source; absent: none. `isOffline`: the predecessor does not reach its API
   * server; absent: it does, or is of a version that does not say so.
   */
  readonly hello: {
    readonly versions: readonly number[];
    readonly program: string;
    readonly unusable?: readonly Unusable[];
    readonly isOffline?: boolean;
  };
  /** `weights`: those that an operator has set. */
  readonly begin: { readonly weights: readonly SetWeight[] };
  /** With the parcel's descriptors and bytes. */
  readonly parcel: unknown;
  readonly end: { readonly parcels: number };
  readonly adopted: unknown;
  readonly failed: { readonly err: string };
  readonly released: unknown;
  readonly owning: unknown;
  readonly serving: unknown;
}

type Kind = keyof Fields;
export type MessageOf<K extends Kind> = { readonly kind: K } & Fields[K];
export type Message = { [K in Kind]: MessageOf<K> }[Kind];

const isText = (value: unknown) => typeof value === 'string';
const isCount = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0;
const isListOf = (isOne: (value: unknown) => boolean) => (value: unknown) => Array.isArray(value) && value.every(isOne);

const CHECKS: { readonly [K in Kind]: { readonly [Field in keyof Fields[K]]-?: (value: unknown) => boolean } } = {
  hello: {
    versions: isListOf(Number.isSafeInteger),
    program: isText,
    unusable: (value = []) => isListOf(isUnusable)(value),
    isOffline: (value = false) => typeof value === 'boolean',
  },
  begin: { weights: isListOf(isSetWeight) },
  parcel: {},
  end: { parcels: isCount },
  adopted: {},
  failed: { err: isText },
  released: {},
  owning: {},
  serving: {},
};

/** Throws an Error that says what is wrong with the message. */
export function readMessage(value: unknown): Message {
  if (!isObject(value)) throw new Error('a message of the hand-over is no object in JSON');
  const { kind, ...fields } = value;
  if (typeof kind !== 'string' || !Object.hasOwn(CHECKS, kind)) {
    throw new Error('a message of the hand-over is of an unknown kind');
  }
  for (const [field, isValid] of Object.entries(CHECKS[kind as Kind])) {
    if (!isValid(fields[field])) throw new Error(`a message "${kind}" of the hand-over has no valid "${field}"`);
  }
  return value as unknown as Message;
}

function isUnusable(value: unknown): boolean {
  const { subject, usable, place, err } = (value ?? {}) as Readonly<Record<string, unknown>>;
  return [subject, place, err].every(isText) && isListOf(isText)(usable);
}

function isSetWeight(value: unknown): boolean {
  const { address, port, weight, before = 1 } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const isAddress = typeof address === 'string' && parseAddress(address) === address;
  const isPort = isCount(port) && (port as number) >= 1 && (port as number) <= 65_535;
  return isAddress && isPort && [weight, before].every((each) => isCount(each) && (each as number) <= MAX_WEIGHT);
}
