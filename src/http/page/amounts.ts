import { scaledNumber } from '../../util/scaled-number.ts';

const UNITS = ['', 'k', 'M', 'G', 'T', 'P'];

/** "0", "0.4", "17", "1.0 k", "350 M": in steps of 1000. */
export function amount(value: number, unit = ''): string {
  const { digits, power } = scaledNumber(value, UNITS.length - 1);
  return `${digits} ${UNITS[power]}${unit}`.trimEnd();
}

export function bytes(value: number): string {
  return amount(value, 'B');
}

/** In binary units, as memory is counted: "87 MiB". */
export function mebibytes(value: number): string {
  return `${Math.round(value / 2 ** 20)} MiB`;
}

/** A number in full: "12,345". */
export function whole(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** "850 ms", "12 s", "3 min", "5 h", "12 d": what one would say. */
export function span(ms: number): string {
  if (ms < 999.5) return `${ms < 9.95 && ms !== Math.round(ms) ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 90_000) return `${ms < 9_950 ? (ms / 1_000).toFixed(1) : Math.round(ms / 1_000)} s`;
  if (ms < 90 * 60_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 36 * 3_600_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** "just now", "12 s ago". */
export function ago(ms: number): string {
  return ms < 1_000 ? 'just now' : `${span(1_000 * Math.floor(ms / 1_000)).replace('.0', '')} ago`;
}
