import type { Counter, ListenerStats } from '../contracts/data-plane.ts';
import { endpointName } from '../model/endpoint.ts';
import type { SeriesFamily, SeriesRow } from './series.ts';

const CONNECTIONS = [counter('connections_total', 'TCP connections accepted and UDP flows begun', 'connections')];
const TRAFFIC: readonly SeriesFamily[] = [
  gauge('connections_active', 'TCP connections and UDP flows that are open now', 'active'),
  counter('received_bytes_total', 'Payload bytes received from clients', 'receivedBytes'),
  counter('sent_bytes_total', 'Payload bytes sent to clients', 'sentBytes'),
];
const CONNECTS: readonly SeriesFamily[] = [
  counter(
    'connects_total',
    'Connects to an endpoint that were answered; divides connect_seconds_total into a mean',
    'connects',
  ),
  {
    name: 'connect_seconds_total',
    type: 'counter',
    help: 'Time that the answered connects took together',
    series: [{ counter: 'connectMs', unitsPerCount: 1 / 1_000 }],
  },
  counter('connect_retries_total', 'Connects to a further endpoint after one had failed', 'retries'),
  {
    name: 'connect_failures_total',
    type: 'counter',
    help: 'Connects to an endpoint that failed, by reason',
    series: [
      { counter: 'failedRefused', label: 'reason="refused"' },
      { counter: 'failedTimeout', label: 'reason="timeout"' },
      { counter: 'failedUnreachable', label: 'reason="unreachable"' },
      { counter: 'failedOther', label: 'reason="other"' },
    ],
  },
];
const REFUSALS: readonly SeriesFamily[] = [
  {
    name: 'turned_away_total',
    type: 'counter',
    help: 'Clients that got no endpoint: there was none, or every try failed',
    series: [
      { counter: 'noEndpoints', label: 'reason="no-endpoints"' },
      { counter: 'exhausted', label: 'reason="exhausted"' },
    ],
  },
  counter('limited_total', 'UDP flows and datagrams refused because a bound was reached', 'limited'),
  counter('accept_pauses_total', 'Times that accepting stopped because descriptors had run out', 'pauses'),
];

const EVERY = [...CONNECTIONS, ...TRAFFIC, ...CONNECTS];

/** On `/metrics`: one series for each Service port, times the value of one more label where there is one. */
export const SERVICE_PORT_FAMILIES: readonly SeriesFamily[] = [...EVERY, ...REFUSALS].map(named('userspace_proxy_'));

/** On `/metrics/endpoints`: the same for each endpoint of each Service port; refusals are not an endpoint's. */
export const ENDPOINT_FAMILIES: readonly SeriesFamily[] = EVERY.map(named('userspace_proxy_endpoint_'));

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
      yield { labels: `${labels},endpoint="${endpointName(endpoint)}"`, counters };
    }
  }
}

function counter(name: string, help: string, of: Counter): SeriesFamily {
  return { name, type: 'counter', help, series: [{ counter: of }] };
}

function gauge(name: string, help: string, of: Counter): SeriesFamily {
  return { name, type: 'gauge', help, series: [{ counter: of }] };
}

function named(prefix: string): (family: SeriesFamily) => SeriesFamily {
  return (family) => ({ ...family, name: prefix + family.name });
}

/** Splits the printed ServicePortName: `namespace/service`, or `namespace/service:port`. */
function labelsOf({ name, protocol }: ListenerStats): string {
  const [, namespace = '', service = '', port = ''] = /^([^/]*)\/([^:]*):?(.*)$/s.exec(name) ?? [];
  return labelText({ namespace, service, port, protocol });
}

function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([label, value]) => `${label}="${escaped(value)}"`)
    .join(',');
}

/** Names are validated long before; a line that they could break would take the whole scrape with it. */
function escaped(value: string): string {
  return value.replace(/[\\"\n]/g, (character) => (character === '\n' ? '\\n' : `\\${character}`));
}
