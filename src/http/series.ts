import { setImmediate } from 'node:timers/promises';
import { COUNTERS, type Counter, type Counters } from '../model/data-plane.ts';

/** One metric: its series are the rows, times the reasons where there are some. */
export interface SeriesFamily {
  readonly name: string;
  readonly type: 'counter' | 'gauge';
  readonly help: string;
  readonly series: readonly {
    readonly counter: Counter;
    /** The value of a label of that name. */
    readonly reason?: string;
    readonly unitsPerCount?: number;
  }[];
}

export interface SeriesRow {
  /** As `namespace="default",service="web"`, escaped. */
  readonly labels: string;
  readonly counters: Readonly<Counters>;
}

/** What is read, or printed, in one turn of the event loop: well below a millisecond. */
const ROWS_PER_TURN = 100;
const SAMPLES_PER_TURN = 500;

/**
 * Reads the rows a slice at a time, so that tens of thousands of them hold up nothing else. Those with the same labels are
 * added up: the listeners of one Service port. At most `max` are kept, the first ones, which for a Map are the oldest:
 * whoever has a series keeps it. The others are added up in one more row.
 * Rejects with what reading throws.
 */
export async function collectRows(
  rows: Iterable<SeriesRow>,
  { max, others: labels }: { readonly max: number; readonly others: string },
): Promise<readonly SeriesRow[]> {
  const kept = new Map<string, Readonly<Counters>>();
  let others: Readonly<Counters> | undefined;
  let read = 0;
  for (const row of rows) {
    const before = kept.get(row.labels);
    if (before !== undefined || kept.size < max) kept.set(row.labels, sum(before, row.counters));
    else others = sum(others, row.counters);
    read += 1;
    if (read % ROWS_PER_TURN === 0) await setImmediate();
  }
  const collected = Array.from(kept, ([labels, counters]) => ({ labels, counters }));
  return others === undefined ? collected : [...collected, { labels, counters: others }];
}

function sum(a: Readonly<Counters> | undefined, b: Readonly<Counters>): Readonly<Counters> {
  if (a === undefined) return b;
  return Object.fromEntries(COUNTERS.map((counter) => [counter, a[counter] + b[counter]])) as Counters;
}

/**
 * Prometheus' text format, in parts, with a turn of the event loop after each. Written by hand: the values live in the
 * data plane already; prom-client would keep a second copy of each series, print all of them in one go, and need to be
 * told which have gone.
 */
export async function* printSeries(
  families: readonly SeriesFamily[],
  rows: readonly SeriesRow[],
): AsyncGenerator<string> {
  for (const { name, type, help, series } of families) {
    let text = `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    let samples = 0;
    for (const { labels, counters } of rows) {
      for (const { counter, reason, unitsPerCount = 1 } of series) {
        const value = counters[counter] * unitsPerCount;
        text += `${name}{${labels}${reason === undefined ? '' : `,reason="${reason}"`}} ${value}\n`;
      }
      samples += series.length;
      if (samples >= SAMPLES_PER_TURN) {
        yield text;
        await setImmediate();
        text = '';
        samples = 0;
      }
    }
    if (text !== '') yield text;
  }
}
