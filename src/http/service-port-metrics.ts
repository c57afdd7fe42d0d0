import { setImmediate } from 'node:timers/promises';
import {
  COUNTERS,
  type Counter,
  type Counters,
  FAILURE_COUNTER,
  type ListenerStats,
  REFUSAL_COUNTER,
  WAIT_BOUNDS_MS,
  WAIT_TIMES,
} from '../model/data-plane.ts';
import { partsOf } from '../model/service.ts';

/*
 * The metrics that have series for each Service port, or for each endpoint, in Prometheus' text format.
 * Written by hand: for 10,000 Service ports, a scrape by prom-client takes 600 ms of CPU, at least 150 ms of it in one
 * turn of the event loop; this takes 60 ms, at most 4 ms in one turn.
 */

/** One metric, with one series or several for each row. */
export interface SeriesFamily {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly series: readonly Series[];
  /** Only rows that have counted one of these have series. Absent: all rows. */
  readonly onlyIf?: readonly Counter[];
}

interface Series {
  /** Their sum is shown. */
  readonly counters: readonly Counter[];
  /** Behind the name of the family. */
  readonly suffix?: '' | '_bucket' | '_sum' | '_count';
  readonly label?: { readonly name: 'reason' | 'le'; readonly value: string };
  readonly unitsPerCount?: number;
}

export interface SeriesRow {
  /** As `namespace="default",service="web"`, escaped. */
  readonly labels: string;
  readonly counters: Readonly<Counters>;
}

/** The metrics of both Service ports and endpoints. Some have another help text for endpoints. */
const SHARED: readonly (SeriesFamily & { readonly helpForEndpoint?: string })[] = [
  {
    ...counter('connections_total', 'TCP connections accepted and UDP flows begun', 'connections'),
    helpForEndpoint: 'TCP connections and UDP flows that this endpoint (address:port) got',
  },
  { ...counter('connections_active', 'TCP connections and UDP flows that are open now', 'active'), type: 'gauge' },
  counter('received_bytes_total', 'Payload bytes received from clients', 'receivedBytes'),
  counter('sent_bytes_total', 'Payload bytes sent to clients', 'sentBytes'),
  {
    ...counter(
      'connects_total',
      'TCP connects to an endpoint that were answered; divides connect_seconds_total into a mean',
      'connects',
    ),
    helpForEndpoint: 'TCP connects that this endpoint answered; divides connect_seconds_total into a mean',
  },
  {
    ...counter('connect_seconds_total', 'Time that the answered connects took together', 'connectMs'),
    series: [{ counters: ['connectMs'], unitsPerCount: 1 / 1_000 }],
  },
  {
    ...counter('connect_retries_total', 'Connects to a further endpoint after one had failed', 'retries'),
    helpForEndpoint: 'Connects to this endpoint after one to another had failed',
  },
  {
    name: 'connect_failures_total',
    type: 'counter',
    help: 'Connects to an endpoint that failed, by reason: refused, timeout, unreachable, other',
    helpForEndpoint: 'Connects to this endpoint that failed, by reason: refused, timeout, unreachable, other',
    series: byReason(FAILURE_COUNTER),
  },
  {
    ...counter('resets_total', 'TCP connections that the endpoint has reset, or the way to it broke', 'resets'),
    helpForEndpoint: 'TCP connections that this endpoint has reset, or the way to it broke',
  },
  {
    ...counter('hedges_total', 'Connects to a second endpoint while the first was silent (--dial-hedge)', 'hedges'),
    helpForEndpoint: 'Connects to this endpoint while another one was silent (--dial-hedge)',
  },
  {
    ...counter('ejections_total', 'Ejections of endpoints that failed too often in a row', 'ejections'),
    helpForEndpoint: 'Times that this endpoint was ejected because it failed too often in a row',
  },
  {
    ...counter('ejected', 'Endpoints that are ejected now: clients get them last', 'ejected'),
    type: 'gauge',
    helpForEndpoint: '1 while this endpoint is ejected: clients get it last',
  },
];

const REFUSALS: readonly SeriesFamily[] = [
  {
    name: 'turned_away_total',
    type: 'counter',
    help:
      'Clients that got no endpoint, by reason: there was none (no-endpoints), every try failed (exhausted), they had ' +
      'waited for too long (wait-timeout), or too many waited (wait-full)',
    series: byReason(REFUSAL_COUNTER),
  },
  counter(
    'limited_total',
    'UDP datagrams dropped at a bound on flows or descriptors, or refused by a full socket buffer or the network',
    'limited',
  ),
  counter(
    'udp_not_kept_total',
    'First datagrams of UDP flows that no other endpoint would get if theirs failed, because too many waited',
    'notKept',
  ),
  counter(
    'affinity_forgotten_total',
    'Clients with ClientIP affinity that may get another endpoint than before, because too many are remembered',
    'affinityForgotten',
  ),
  counter(
    'accept_pauses_total',
    'Times that accepting stopped because descriptors had run out, or the namespace held its share of them',
    'pauses',
  ),
];

const WAITING: readonly SeriesFamily[] = [
  { ...counter('clients_waiting', 'Clients that wait for an endpoint now', 'waiting'), type: 'gauge' },
  {
    name: 'wait_seconds',
    type: 'histogram',
    help: 'How long clients waited for an endpoint, whatever became of them; only for Service ports where some have',
    series: [
      // The last counter has those that waited longer, too.
      ...WAIT_BOUNDS_MS.map((ms, index): Series => {
        const isLast = index === WAIT_BOUNDS_MS.length - 1;
        const le = { name: 'le', value: isLast ? '+Inf' : String(ms / 1_000) } as const;
        return { counters: WAIT_TIMES.slice(0, index + 1), suffix: '_bucket', label: le };
      }),
      { counters: ['waitMs'], suffix: '_sum', unitsPerCount: 1 / 1_000 },
      { counters: WAIT_TIMES, suffix: '_count' },
    ],
    onlyIf: WAIT_TIMES,
  },
];

/** On `/metrics`: one series for each Service port, times the reasons where there are some. */
export const SERVICE_PORT_FAMILIES: readonly SeriesFamily[] = [...SHARED, ...REFUSALS, ...WAITING].map((family) => ({
  ...family,
  name: `userspace_proxy_${family.name}`,
}));

/** On `/metrics/endpoints`: the same for each endpoint of each Service port; refusals are not an endpoint's. */
export const ENDPOINT_FAMILIES: readonly SeriesFamily[] = SHARED.map(({ help, helpForEndpoint = help, ...family }) => ({
  ...family,
  name: `userspace_proxy_endpoint_${family.name}`,
  help: helpForEndpoint,
}));

/** The labels of the series that stands for all Service ports beyond the bound. No Service has an empty name. */
export const OTHER_SERVICE_PORTS = labelText({ namespace: '', service: '', port: '', protocol: '' });
export const OTHER_ENDPOINTS = `${OTHER_SERVICE_PORTS},endpoint=""`;

export function* servicePortRows(stats: Iterable<ListenerStats>): Generator<SeriesRow> {
  for (const port of stats) yield { labels: labelsOf(port), counters: port.counters };
}

/** Nothing in an engine that does not count by endpoint. */
export function* endpointRows(stats: Iterable<ListenerStats>): Generator<SeriesRow> {
  for (const port of stats) {
    const labels = labelsOf(port);
    for (const { endpoint, counters } of port.endpoints ?? []) {
      yield { labels: `${labels},endpoint="${endpoint.name}"`, counters };
    }
  }
}

function counter(name: string, help: string, of: Counter): SeriesFamily {
  return { name, type: 'counter', help, series: [{ counters: [of] }] };
}

function byReason(counters: Readonly<Record<string, Counter>>): readonly Series[] {
  return Object.entries(counters).map(([value, of]) => ({ counters: [of], label: { name: 'reason', value } }));
}

function labelsOf({ name, protocol }: ListenerStats): string {
  const { namespace, service, portName: port } = partsOf(name);
  return labelText({ namespace, service, port, protocol });
}

/** Names have been validated long before, but one that is not would break the whole scrape. */
function labelText(labels: Readonly<Record<string, string>>): string {
  const escaped = (value: string) => value.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n');
  return Object.entries(labels)
    .map(([label, value]) => `${label}="${escaped(value)}"`)
    .join(',');
}

/** What is read, or printed, in one turn of the event loop: well below a millisecond. */
const ROWS_PER_TURN = 100;
const SAMPLES_PER_TURN = 500;

/**
 * Reads the rows in slices, and adds up those with the same labels, which are the listeners of one Service port. Keeps
 * the first `max`, the oldest ones, so that a series stays. Adds up the others in one more row.
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

/** Prints one sample. What all rows have in common is put together once. */
function printer(
  name: string,
  { counters: shown, suffix = '', label, unitsPerCount = 1 }: Series,
): (row: SeriesRow) => string {
  const head = `${name}${suffix}{`;
  const tail = label === undefined ? '} ' : `,${label.name}="${label.value}"} `;
  return ({ labels, counters }) => {
    let value = 0;
    for (const counter of shown) value += counters[counter];
    return `${head}${labels}${tail}${value * unitsPerCount}\n`;
  };
}

/** In parts, with a turn of the event loop after each. */
export async function* printSeries(
  families: readonly SeriesFamily[],
  rows: readonly SeriesRow[],
): AsyncGenerator<string> {
  for (const { name, type, help, series, onlyIf } of families) {
    let text = `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    let samples = 0;
    const printers = series.map((each) => printer(name, each));
    for (const row of rows) {
      if (onlyIf?.every((counter) => row.counters[counter] === 0)) continue;
      for (const print of printers) text += print(row);
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
