import { printable } from '../util/text.ts';

/** Everything that is not Latin may be two columns wide, or none. */
const OF_UNKNOWN_WIDTH = /[^\u0020-\u007e\u00a1-\u024f]/gu;

/** Text in which every character takes one column: anything else becomes an escape or `?`. */
export function oneColumnEach(text: string): string {
  return printable(text).replace(OF_UNKNOWN_WIDTH, '?');
}

/**
 * A JSON document of several lines without control characters for a terminal, some of which `JSON.stringify` leaves.
 */
export function printableJson(value: unknown): string {
  const lines = JSON.stringify(value, undefined, 2).split('\n');
  return `${lines.map(printable).join('\n')}\n`;
}

/** "02:59", as ipvsadm shows when a connection expires. */
export function minutesAndSeconds(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  return [Math.floor(seconds / 60), seconds % 60].map((each) => String(each).padStart(2, '0')).join(':');
}

/** The two largest units: "0s", "59s", "5m12s", "3h4m", "12d3h". */
export function shortDuration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ] as const;
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return '0s';
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value}${unit}`)
    .join('');
}

/** "13:04:59" in the time zone of this process. */
export function timeOfDay(ms: number): string {
  // Made at the first use and kept, because it takes longer than a line of output.
  timeFormat ??= new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
  return timeFormat.format(ms);
}

let timeFormat: Intl.DateTimeFormat | undefined;

/**
 * A count in 9 columns or more, as ipvsadm prints statistics (`print_largenum` in its `ipvsadm.c`): in full below 100
 * million, else cut to thousands, millions, … with K, M, G or T. `undefined`, which is not counted, is `-`.
 */
export function largeNumber(value: number | undefined, isExact: boolean): string {
  const text = value === undefined ? '-' : largeNumberText(Math.round(value), isExact);
  return ` ${text.padStart(8)}`;
}

const LARGE: readonly (readonly [below: number, unit: number, letter: string])[] = [
  [1e8, 1, ''],
  [1e9, 1e3, 'K'],
  [1e11, 1e6, 'M'],
  [1e14, 1e9, 'G'],
  [Number.POSITIVE_INFINITY, 1e12, 'T'],
];

function largeNumberText(value: number, isExact: boolean): string {
  const [, unit, letter] = LARGE.find(([below]) => isExact || value < below) ?? [0, 1, ''];
  return `${Math.floor(value / unit)}${letter}`;
}

export function capitalized(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}
