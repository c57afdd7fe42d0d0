import type { Measurement } from '../../bench/report.ts';

export const CONTESTANTS = [
  { name: 'fast', kind: 'ours' },
  { name: 'node', kind: 'ours' },
  { name: 'go', kind: 'peer' },
  { name: 'nginx', kind: 'peer' },
  { name: 'direct', kind: 'limit' },
] as const;
export const RATE = { key: 'rate', label: 'rate', unit: '/s', decimals: 1, better: 'more', goal: 1.2 } as const;
export const DELAY = { key: 'delay', label: 'delay', unit: 'µs', decimals: 0, better: 'less', goal: 1 } as const;

/** One measurement for each value, in rounds 0, 1, …; `undefined` fails. */
export function measured(candidate: string, key: string, ...values: readonly (number | undefined)[]): Measurement[] {
  return values.map((value, round) => ({
    row: 'row',
    candidate,
    round,
    ...(value === undefined ? { failure: 'broken' } : { result: { values: { [key]: value }, complaints: [] } }),
  }));
}
