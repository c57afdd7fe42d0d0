import { calls, callsAside } from '../../src/sys/calls.ts';
import type { Blocks } from './blocks.ts';
import { code, filled } from './table.ts';

/** All functions of libc that the program calls. */
export function callNames(): Blocks {
  const names = new Set([...Object.keys(calls), ...Object.keys(callsAside)]);
  return { calls: filled([...names].toSorted().map(code).join(', ')) };
}
