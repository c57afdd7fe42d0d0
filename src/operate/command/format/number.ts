/**
 * A count in 9 columns or more, as ipvsadm prints statistics (`print_largenum` in its `ipvsadm.c`): in full below 100
 * million, else cut to thousands, millions, … with K, M, G or T. `undefined` is what nobody counts: `-`.
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
