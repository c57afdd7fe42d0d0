import type { Candidate } from './candidates.ts';
import type { Result } from './parse.ts';
import type { Goal, Metric, Row } from './rows.ts';
import { median, ratios, summarize } from './statistics.ts';

/** One run of one row against one candidate. */
export interface Measurement {
  readonly row: string;
  readonly candidate: string;
  readonly round: number;
  readonly result?: Result;
  /** Why there is no result. */
  readonly failure?: string;
}

export type Contestant = Pick<Candidate, 'name' | 'kind'>;

/** The subject to somebody else. */
export interface Comparison {
  readonly to: string;
  /** Median over the rounds, and the range. */
  readonly ratio: number;
  readonly least: number;
  readonly most: number;
}

/** A comparison and what it should be. */
export interface Verdict {
  readonly goal?: Goal;
  /** `undefined` when there is no round with both. */
  readonly comparison: Comparison | undefined;
  readonly isMet?: boolean;
}

/** What the measurements say. */
export class Report {
  readonly contestants: readonly Contestant[];
  readonly #measurements: readonly Measurement[];

  constructor(contestants: readonly Contestant[], measurements: readonly Measurement[]) {
    this.contestants = contestants;
    this.#measurements = measurements;
  }

  /** The one of ours that the goals are about, and the other one. */
  get ours(): readonly [subject?: Contestant, other?: Contestant] {
    const [subject, other] = this.contestants.filter(({ kind }) => kind === 'ours');
    return subject === undefined ? [] : other === undefined ? [subject] : [subject, other];
  }

  of(row: string, contestant: string): readonly Measurement[] {
    return this.#measurements.filter((one) => one.row === row && one.candidate === contestant);
  }

  /** A metric's values, by round. */
  values(row: string, contestant: string, { key }: Metric): ReadonlyMap<number, number> {
    const values = new Map<number, number>();
    for (const { round, result } of this.of(row, contestant)) {
      const value = result?.values[key];
      if (value !== undefined) values.set(round, value);
    }
    return values;
  }

  /** The subject against each goal; against the best peer where there is none. */
  verdicts(row: string, metric: Metric): readonly Verdict[] {
    const { goals = [] } = metric;
    if (goals.length === 0) return [{ comparison: this.toBestPeer(row, metric) }];
    return goals.map((goal) => {
      const comparison = goal.to === undefined ? this.toBestPeer(row, metric) : this.to(row, metric, goal.to);
      if (comparison === undefined) return { goal, comparison };
      return { goal, comparison, isMet: isMet(comparison.ratio, goal.ratio, metric) };
    });
  }

  /** The subject against the peer with the best median. */
  toBestPeer(row: string, metric: Metric): Comparison | undefined {
    const sign = metric.better === 'more' ? -1 : 1;
    const [best] = this.contestants
      .flatMap(({ name, kind }) => {
        const values = [...this.values(row, name, metric).values()];
        return kind === 'peer' && values.length > 0 ? [{ name, rank: sign * median(values) }] : [];
      })
      .sort((a, b) => a.rank - b.rank);
    return best && this.to(row, metric, best.name);
  }

  /** The subject against anybody. `undefined` when there is no round with both. */
  to(row: string, metric: Metric, other: string): Comparison | undefined {
    const [subject] = this.ours;
    if (subject === undefined) return undefined;
    const summary = summarize(ratios(this.values(row, subject.name, metric), this.values(row, other, metric)));
    if (summary === undefined) return undefined;
    const { median: ratio, least, most } = summary;
    return { to: other, ratio, least, most };
  }

  /** For machines: every goal, and how far it is reached. */
  goals(rows: readonly Pick<Row, 'name' | 'metrics'>[]): readonly object[] {
    return rows.flatMap(({ name, metrics }) =>
      metrics.flatMap((metric) =>
        this.verdicts(name, metric).flatMap(({ goal, comparison, isMet }) =>
          goal === undefined
            ? []
            : [{ row: name, metric: metric.key, better: metric.better, goal: goal.ratio, ...comparison, isMet }],
        ),
      ),
    );
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
}

function isMet(ratio: number, goal: number, { better }: Metric): boolean {
  return better === 'more' ? ratio >= goal : ratio <= goal;
}
