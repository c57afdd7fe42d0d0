import type { EndpointState, ServiceState } from '../../contracts/view.ts';
import { endpointName } from '../../model/endpoint.ts';
import { shortNumber } from '../format/number.ts';
import { oneColumnEach } from '../format/text.ts';
import type { Style } from './frame.ts';
import { averageDialMs, type EndpointRow, type ServiceRow } from './look.ts';

/** The first column of a table names its rows and takes what the others leave of the screen's width. */
export interface Column<Row> {
  readonly title: string;
  /** With room for the sign of the sort order after the title. Of the first one: what it needs at least. */
  readonly width: number;
  /** Takes what its longest text needs: it is there to be copied. */
  readonly isWhole?: true;
  readonly align: 'left' | 'right';
  /** Where the screen is too narrow for all, those with the greatest number are left out. */
  readonly rank: number;
  readonly text: (row: Row) => string;
  readonly style?: (row: Row) => Style;
  readonly compare: (a: Row, b: Row) => number;
  /** Whether the greatest come first, until the user turns it around. */
  readonly isDescending: boolean;
}

export const SERVICE_COLUMNS: readonly Column<ServiceRow>[] = [
  words('SERVICE', 28, 0, ({ name, family }) => (family === 'IPv6' ? `${name} (IPv6)` : name)),
  words('PROT', 5, 9, ({ protocol }) => protocol),
  { ...words('ADDRESS', 21, 12, ({ address }) => address), isWhole: true },
  {
    ...words('STATE', 6, 1, ({ state }) => SERVICE_STATES[state].text),
    style: ({ state }) => SERVICE_STATES[state].style,
    compare: (a, b) => SERVICE_STATES[a.state].badness - SERVICE_STATES[b.state].badness,
    isDescending: true,
  },
  {
    ...words('ENDP', 7, 3, ({ endpoints: { active, all } }) => `${shortNumber(active)}/${shortNumber(all)}`),
    align: 'right',
    compare: (a, b) => a.endpoints.all - b.endpoints.all,
    isDescending: true,
  },
  numbers('CONNS', 6, 4, ({ active }) => active),
  numbers('CONN/S', 7, 2, ({ rates }) => rates.connections),
  numbers('IN/S', 5, 5, ({ rates }) => rates.receivedBytes),
  numbers('OUT/S', 6, 6, ({ rates }) => rates.sentBytes),
  { ...numbers('FAIL/S', 7, 7, ({ rates }) => rates.failures), style: ({ rates }) => badIfAny(rates.failures) },
  numbers('RETRY/S', 8, 8, ({ rates }) => rates.retries),
  numbers('DIAL ms', 8, 10, ({ dialMs }) => dialMs),
  numbers('TOTAL', 6, 11, ({ connections }) => connections),
];

export const ENDPOINT_COLUMNS: readonly Column<EndpointRow>[] = [
  { ...words('ENDPOINT', 21, 0, ({ endpoint }) => endpointName(endpoint.endpoint)), isWhole: true },
  words('FOR', 6, 9, ({ set }) => (set === 'own' ? 'all' : set)),
  {
    ...words('STATE', 8, 1, ({ endpoint }) => endpoint.state),
    style: ({ endpoint }) => ENDPOINT_STATES[endpoint.state],
  },
  numbers('CONNS', 6, 3, ({ endpoint }) => endpoint.counters?.active),
  numbers('CONN/S', 7, 2, ({ rates }) => rates?.connections),
  numbers('IN/S', 5, 4, ({ rates }) => rates?.receivedBytes),
  numbers('OUT/S', 6, 5, ({ rates }) => rates?.sentBytes),
  {
    ...numbers('FAIL/S', 7, 6, ({ rates }: EndpointRow) => rates?.failures),
    style: ({ rates }) => badIfAny(rates?.failures ?? 0),
  },
  numbers('DIAL ms', 8, 7, ({ endpoint }) => endpoint.counters && averageDialMs(endpoint.counters)),
  numbers('TOTAL', 6, 8, ({ endpoint }) => endpoint.counters?.connections),
  words('LAST ERROR', 40, 10, ({ endpoint }) => oneColumnEach(endpoint.lastError?.err ?? '')),
];

export const SERVICE_STATES: Readonly<
  Record<ServiceState, { readonly text: string; readonly style: Style; readonly badness: number }>
> = {
  ok: { text: 'ok', style: 'good', badness: 0 },
  pending: { text: 'pend.', style: 'warning', badness: 1 },
  empty: { text: 'empty', style: 'warning', badness: 2 },
  degraded: { text: 'degr.', style: 'bad', badness: 3 },
};

const ENDPOINT_STATES: Readonly<Record<EndpointState, Style>> = {
  active: 'good',
  draining: 'faint',
  drained: 'warning',
};

/** Those that fit, in their order, as wide as they are with these rows. */
export function shownColumns<Row>(
  all: readonly Column<Row>[],
  rows: readonly Row[],
  screenColumns: number,
): readonly Column<Row>[] {
  const sized = all.map((column) => (column.isWhole ? { ...column, width: wholeWidth(column, rows) } : column));
  let left = screenColumns;
  const fitting = new Set<Column<Row>>();
  for (const column of sized.toSorted((a, b) => a.rank - b.rank)) {
    left -= column.width + (fitting.size === 0 ? 0 : 1);
    // The first one is there, however narrow the screen is.
    if (left < 0 && fitting.size > 0) break;
    fitting.add(column);
  }
  return sized.filter((column) => fitting.has(column));
}

function wholeWidth<Row>({ width, text }: Column<Row>, rows: readonly Row[]): number {
  return rows.reduce((widest, row) => Math.max(widest, text(row).length), width);
}

function words<Row>(title: string, width: number, rank: number, text: (row: Row) => string): Column<Row> {
  const compare = (a: Row, b: Row) => (text(a) < text(b) ? -1 : Number(text(a) > text(b)));
  return { title, width, rank, align: 'left', text, compare, isDescending: false };
}

/** `undefined` is what nobody counts. */
function numbers<Row>(title: string, width: number, rank: number, of: (row: Row) => number | undefined): Column<Row> {
  return {
    title,
    width,
    rank,
    align: 'right',
    text: (row) => {
      const value = of(row);
      return value === undefined ? '-' : shortNumber(value);
    },
    compare: (a, b) => (of(a) ?? -1) - (of(b) ?? -1),
    isDescending: true,
  };
}

function badIfAny(failures: number): Style {
  return failures > 0 ? 'bad' : 'plain';
}
