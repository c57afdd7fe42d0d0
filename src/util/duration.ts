const NS_PER_UNIT: ReadonlyMap<string, bigint> = new Map([
  ['ns', 1n],
  ['us', 1_000n],
  ['µs', 1_000n], // U+00B5, micro sign
  ['μs', 1_000n], // U+03BC, Greek letter mu
  ['ms', 1_000_000n],
  ['s', 1_000_000_000n],
  ['m', 60_000_000_000n],
  ['h', 3_600_000_000_000n],
]);
const NS_PER_MS = 1_000_000;

/** Go keeps a duration in an int64 of nanoseconds: about 292 years. */
const MAX_NS = 2n ** 63n - 1n;

const PART = /(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)/gy;

/**
 * Reads a duration in the grammar of Go's `time.ParseDuration` ("250ms", "1h15m30.918s", ".5s", "-1.5h", "0") and
 * returns milliseconds, with a fraction where there is one. `undefined` for anything else, and beyond Go's range.
 */
export function parseDuration(text: string): number | undefined {
  const negative = text.startsWith('-');
  const unsigned = negative || text.startsWith('+') ? text.slice(1) : text;
  if (unsigned === '0') return 0;
  if (unsigned === '') return undefined;

  let total = 0n;
  let end = 0;
  for (const [part, whole = '', fraction = '', unit = ''] of unsigned.matchAll(PART)) {
    if (whole === '' && fraction === '') return undefined;
    const ns = NS_PER_UNIT.get(unit) ?? 0n;
    // Fractions of a nanosecond are cut off, as in Go.
    total += BigInt(`0${whole}`) * ns + (BigInt(`0${fraction}`) * ns) / 10n ** BigInt(fraction.length);
    end += part.length;
  }
  if (end !== unsigned.length) return undefined;
  // int64 reaches one further down than up.
  if (total > (negative ? MAX_NS + 1n : MAX_NS)) return undefined;
  return Number(negative ? -total : total) / NS_PER_MS;
}

/** Shows milliseconds as Go's `Duration.String` does: "250ms", "1.5s", "5m0s", "1h15m30.918s". */
export function formatDuration(ms: number): string {
  if (ms < 0) return `-${formatDuration(-ms)}`;
  if (ms === 0) return '0s';
  const ns = Math.round(ms * NS_PER_MS);
  if (ns < 1_000) return `${ns}ns`;
  if (ns < 1_000_000) return `${ns / 1_000}µs`;
  if (ns < 1_000_000_000) return `${ns / NS_PER_MS}ms`;
  const minutes = Math.floor(ns / 60_000_000_000);
  const seconds = `${(ns % 60_000_000_000) / 1_000_000_000}s`;
  if (minutes === 0) return seconds;
  return minutes < 60 ? `${minutes}m${seconds}` : `${Math.floor(minutes / 60)}h${minutes % 60}m${seconds}`;
}
