/** Of at least one number. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

export interface Summary {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

/** `undefined` when there is nothing to summarize. */
export function summarize(values: readonly number[]): Summary | undefined {
  if (values.length === 0) return undefined;
  return { median: median(values), least: Math.min(...values), most: Math.max(...values) };
}

/** Half of the range, as a share of the median: 0.05 for a range of ±5 %. */
export function spread({ median: middle, least, most }: Summary): number {
  return middle === 0 ? 0 : (most - least) / 2 / middle;
}

/** `ours` to `theirs`, round by round: what disturbs one round disturbs both, so these ratios scatter less. */
export function ratios(ours: ReadonlyMap<number, number>, theirs: ReadonlyMap<number, number>): number[] {
  return [...ours].flatMap(([round, value]) => {
    const other = theirs.get(round);
    return other === undefined || other === 0 ? [] : [value / other];
  });
}

/** The nearest-rank percentile (0 to 100) of at least one number. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const rank = Math.max(1, Math.ceil((percent / 100) * sorted.length));
  return sorted[rank - 1]!;
}
