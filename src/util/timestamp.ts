/** `2026-11-20T05:23:36.843Z` from milliseconds since 1970. */
export function rfc3339(wallMs: number): string {
  // biome-ignore lint/style/noRestrictedGlobals: formats a time, does not read the clock
  return new Date(wallMs).toISOString();
}

/** One moment on both clocks, in milliseconds (util/clock.ts). */
export interface Instant {
  readonly wallMs: number;
  readonly monotonicMs: number;
}

/**
 * As Go prints a `time.Time` that carries a monotonic reading: `2026-11-20 05:23:36.843 +0000 UTC m=+4.005531936`. The
 * fraction of the second loses its trailing zeros, the monotonic one does not. `undefined` is Go's zero time.
 */
export function goTime(instant: Instant | undefined): string {
  if (instant === undefined) return '0001-01-01 00:00:00 +0000 UTC';
  const [date, time = ''] = rfc3339(instant.wallMs).split(/[TZ]/);
  return `${date} ${time.replace(/\.?0+$/, '')} +0000 UTC m=+${(instant.monotonicMs / 1_000).toFixed(9)}`;
}
