import type { Member } from '../member.ts';

/** With no share at all a new endpoint would never be warmed up. Envoy begins with a tenth, too. */
const SMALLEST_SHARE = 0.1;

/** Grows from a tenth to 1 over the time of the slow start. */
export function shareOf({ sinceMs }: Member, slowStartMs: number, nowMs: number): number {
  if (slowStartMs === 0 || sinceMs === Number.NEGATIVE_INFINITY) return 1;
  return Math.min(1, Math.max(SMALLEST_SHARE, (nowMs - sinceMs) / slowStartMs));
}
