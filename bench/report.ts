import type { Candidate } from './candidates.ts';
import type { Result } from './parse.ts';
import type { Metric, Row } from './rows.ts';
import { median, ratios, spread, summarize } from './statistics.ts';

/** One run of one row against one candidate. */
export interface Measurement {
  readonly row: string;
  readonly candidate: string;
  readonly round: number;
  readonly result?: Result;
  /** Why there is no result. */
  readonly failure?: string;
}

type Who = Pick<Candidate, 'name' | 'kind' | 'carriesUdp'>;
type What = Pick<Row, 'name' | 'what' | 'isUdp' | 'metrics'>;

export interface Comparison {
  readonly peer: string;
  /** Medians over the rounds, and the range. */
  readonly ratio: number;
  readonly least: number;
  readonly most: number;
  /** `undefined` without a goal. */
  readonly isReached: boolean | undefined;
}

export class Report {
  readonly #candidates: readonly Who[];
  readonly #measurements: readonly Measurement[];

  constructor(candidates: readonly Who[], measurements: readonly Measurement[]) {
    this.#candidates = candidates;
    this.#measurements = measurements;
  }

  /** The candidate of ours that the goals are about. */
  get subject(): Who | undefined {
    return this.#candidates.find(({ kind }) => kind === 'ours');
  }

  /** A metric's values of one candidate, by round. */
  values(row: string, candidate: string, metric: Metric): ReadonlyMap<number, number> {
    const values = new Map<number, number>();
    for (const measurement of this.#of(row, candidate)) {
      const value = measurement.result?.values[metric.key];
      if (value !== undefined) values.set(measurement.round, value);
    }
    return values;
  }

  /** The subject against the peer with the best median. */
  againstBestPeer(row: string, metric: Metric): Comparison | undefined {
    const sign = metric.better === 'more' ? 1 : -1;
    const peers = this.#candidates.flatMap(({ name, kind }) => {
      const values = [...this.values(row, name, metric).values()];
      return kind === 'peer' && values.length > 0 ? [{ name, rank: sign * median(values) }] : [];
    });
    const best = peers.reduce<(typeof peers)[number] | undefined>(
      (best, peer) => (best === undefined || peer.rank > best.rank ? peer : best),
      undefined,
    );
    return best && this.against(row, metric, best.name);
  }

  against(row: string, metric: Metric, peer: string): Comparison | undefined {
    const { subject } = this;
    if (subject === undefined) return undefined;
    const summary = summarize(ratios(this.values(row, subject.name, metric), this.values(row, peer, metric)));
    if (summary === undefined) return undefined;
    const { goal, better } = metric;
    const { median: ratio, least, most } = summary;
    const isReached = goal === undefined ? undefined : better === 'more' ? ratio >= goal : ratio <= goal;
    return { peer, ratio, least, most, isReached };
  }

  /** The table, ready to print. */
  table(rows: readonly What[]): string {
    const second = this.#candidates.find((candidate) => candidate.kind === 'ours' && candidate !== this.subject);
    const head = [
      '',
      '',
      'goal',
      `${this.subject?.name ?? 'ours'} / best peer`,
      '(range)',
      '',
      ...(second === undefined ? [] : [`/ ${second.name}`]),
      ...this.#candidates.map(({ name }) => name),
    ];
    const lines: (string | readonly string[])[] = [head];
    for (const row of rows) {
      lines.push('', `${row.name}: ${row.what}`);
      for (const metric of row.metrics) {
        const best = this.againstBestPeer(row.name, metric);
        const other = second && this.against(row.name, metric, second.name);
        lines.push([
          `  ${metric.label}`,
          metric.unit,
          metric.goal === undefined ? '' : `${metric.better === 'more' ? '≥' : '≤'} ${metric.goal.toFixed(2)}`,
          best === undefined ? '' : `${best.ratio.toFixed(2)} ${best.peer}`,
          best === undefined ? '' : `(${best.least.toFixed(2)}–${best.most.toFixed(2)})`,
          best?.isReached === undefined ? '' : best.isReached ? 'ok' : 'MISSED',
          ...(second === undefined ? [] : [other === undefined ? '' : other.ratio.toFixed(2)]),
          ...this.#candidates.map((candidate) => this.#cell(row, candidate, metric)),
        ]);
      }
    }
    return align(lines);
  }

  /** What failed and what was not as it should be, each once with how often. */
  troubles(): string[] {
    const counts = new Map<string, number>();
    for (const { row, candidate, result, failure } of this.#measurements) {
      const sentences = failure === undefined ? (result?.complaints ?? []) : [failure];
      for (const sentence of sentences) {
        const trouble = `${row}, ${candidate}: ${sentence}`;
        counts.set(trouble, (counts.get(trouble) ?? 0) + 1);
      }
    }
    return [...counts].map(([trouble, count]) => (count === 1 ? trouble : `${trouble} (${count} times)`));
  }

  #of(row: string, candidate: string): readonly Measurement[] {
    return this.#measurements.filter((one) => one.row === row && one.candidate === candidate);
  }

  /** Median, half of the range, and "!" where something is to be read in {@link troubles}. */
  #cell(row: What, candidate: Who, metric: Metric): string {
    const measurements = this.#of(row.name, candidate.name);
    const summary = summarize([...this.values(row.name, candidate.name, metric).values()]);
    if (summary === undefined) return measurements.some(({ failure }) => failure !== undefined) ? 'FAILED' : '–';
    const isTroubled = measurements.some((one) => one.failure !== undefined || one.result?.complaints.length !== 0);
    return `${format(summary.median, metric.decimals)} ±${Math.round(spread(summary) * 100)}%${isTroubled ? '!' : ''}`;
  }
}

function format(value: number, decimals: number): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** Columns of the lines that have cells; the first two to the left. */
function align(lines: readonly (string | readonly string[])[]): string {
  const widths: number[] = [];
  for (const cells of lines) {
    if (typeof cells === 'string') continue;
    cells.forEach((cell, i) => {
      widths[i] = Math.max(widths[i] ?? 0, cell.length);
    });
  }
  const pad = (cell: string, i: number) => (i < 2 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!));
  return lines.map((cells) => (typeof cells === 'string' ? cells : cells.map(pad).join('  ').trimEnd())).join('\n');
}
