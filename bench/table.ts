import type { Report, Verdict } from './report.ts';
import type { Metric, Row } from './rows.ts';
import { spread, summarize } from './statistics.ts';

/** A heading over columns, or cells. */
export type Line = string | readonly string[];

const NOTHING = '–';

/** Ratios beside goals, then medians with half of their range. "!" sends the reader to {@link Report.troubles}. */
export function table(report: Report, rows: readonly Pick<Row, 'name' | 'what' | 'metrics'>[]): string {
  const [subject, other] = report.ours;
  const name = subject?.name ?? 'ours';
  const contestants = report.contestants.map((contestant) => contestant.name);
  const lines: Line[] = [
    ['', '', 'goal', `${name} to`, '(range)', '', other ? `${name} / ${other.name}` : '', ...contestants],
  ];
  for (const row of rows) {
    lines.push('', `${row.name}: ${row.what}`);
    for (const metric of row.metrics) {
      const second = other && report.to(row.name, metric, other.name);
      const [first, ...others] = report.verdicts(row.name, metric).map((verdict) => verdictCells(verdict, metric));
      lines.push([
        `  ${metric.label}`,
        metric.unit,
        ...first!,
        second?.ratio.toFixed(2) ?? '',
        ...contestants.map((contestant) => cell(report, { row: row.name, contestant, metric })),
      ]);
      lines.push(...others.map((cells) => ['', '', ...cells]));
    }
  }
  return align(lines);
}

function verdictCells({ goal, comparison, isMet }: Verdict, { better }: Metric): readonly string[] {
  const wanted = goal === undefined ? '' : `${better === 'more' ? '≥' : '≤'} ${goal.ratio.toFixed(2)}`;
  if (comparison === undefined) return [wanted, '', '', ''];
  const { to, ratio, least, most } = comparison;
  const verdict = isMet === undefined ? '' : isMet ? 'met' : 'MISSED';
  return [wanted, `${ratio.toFixed(2)} ${to}`, `(${least.toFixed(2)}–${most.toFixed(2)})`, verdict];
}

interface Place {
  readonly row: string;
  readonly contestant: string;
  readonly metric: Metric;
}

function cell(report: Report, { row, contestant, metric }: Place): string {
  const measurements = report.of(row, contestant);
  const summary = summarize([...report.values(row, contestant, metric).values()]);
  if (summary === undefined) return measurements.some(({ failure }) => failure !== undefined) ? 'FAILED' : NOTHING;
  const isTroubled = measurements.some(({ failure, result }) => failure !== undefined || result?.complaints.length);
  return `${figure(summary.median, metric)} ±${Math.round(spread(summary) * 100)}%${isTroubled ? '!' : ''}`;
}

function figure(value: number, { decimals }: Metric): string {
  return value.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

/** The first two columns to the left, the others to the right; a column without content is left out. */
export function align(lines: readonly Line[]): string {
  const widths: number[] = [];
  for (const cells of lines) {
    if (typeof cells === 'string') continue;
    cells.forEach((text, i) => {
      widths[i] = Math.max(widths[i] ?? 0, text.length);
    });
  }
  const text = (cells: readonly string[]) =>
    cells
      .map((content, i) => (i < 2 ? content.padEnd(widths[i]!) : content.padStart(widths[i]!)))
      .filter((_, i) => widths[i] !== 0)
      .join('  ')
      .trimEnd();
  return lines.map((line) => (typeof line === 'string' ? line : text(line))).join('\n');
}
