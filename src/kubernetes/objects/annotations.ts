import { suggest } from '../../util/suggest.ts';
import { type Field, isObject } from '../../util/untrusted.ts';

/** Of annotations that only this proxy reads. */
export const PREFIX = 'kube-userspace-proxy/';

/** A longer name is no typing error, and comparing it takes long. */
const MAX_NAME = 63;

/** Of annotations with a value. */
export function keysOf({ value }: Field): readonly string[] {
  return isObject(value) ? Object.keys(value).filter((key) => value[key] !== null && value[key] !== undefined) : [];
}

/** Those with our prefix that none of these names is behind. */
export function unknownAmong(keys: readonly string[], names: readonly string[]): readonly string[] {
  return keys.filter((key) => key.startsWith(PREFIX) && !names.includes(key.slice(PREFIX.length)));
}

/** What to do about one of {@link unknownAmong}. */
export function adviceOn(unknown: string, names: readonly string[]): string {
  const meant = suggest(unknown.slice(PREFIX.length).slice(0, MAX_NAME), names);
  return meant === undefined ? 'correct or remove it' : `did you mean ${PREFIX}${meant}?`;
}
