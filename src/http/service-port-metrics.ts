import type { Counter, ListenerStats } from '../model/data-plane.ts';
import { endpointName } from '../model/endpoint.ts';
import { partsOf } from '../model/service.ts';
import type { SeriesFamily, SeriesRow } from './series.ts';

/** What is counted for Service ports and for their endpoints, with other words for these where it means something else. */
interface SharedFamily extends SeriesFamily {
  readonly helpForEndpoint?: string;
}

const SHARED: readonly SharedFamily[] = [
  {
    ...counter('connections_total', 'TCP connections accepted and UDP flows begun', 'connections'),
    helpForEndpoint: 'TCP connections and UDP flows that this endpoint (address:port) got',
  },
  gauge('connections_active', 'TCP connections and UDP flows that are open now', 'active'),
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
    name: 'connect_seconds_total',
    type: 'counter',
    help: 'Time that the answered connects took together',
    series: [{ counter: 'connectMs', unitsPerCount: 1 / 1_000 }],
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
    series: [
      { counter: 'failedRefused', reason: 'refused' },
      { counter: 'failedTimeout', reason: 'timeout' },
      { counter: 'failedUnreachable', reason: 'unreachable' },
      { counter: 'failedOther', reason: 'other' },
    ],
  },
  {
    ...counter('resets_total', 'TCP connections that the endpoint has reset, or the way to it broke', 'resets'),
    helpForEndpoint: 'TCP connections that this endpoint has reset, or the way to it broke',
  },
];

const REFUSALS: readonly SeriesFamily[] = [
  {
    name: 'turned_away_total',
    type: 'counter',
    help: 'Clients that got no endpoint, by reason: there was none (no-endpoints), or every try failed (exhausted)',
    series: [
      { counter: 'noEndpoints', reason: 'no-endpoints' },
      { counter: 'exhausted', reason: 'exhausted' },
    ],
  },
  counter(
    'limited_total',
    'UDP datagrams dropped at a bound on flows, or refused by a full socket buffer or the network',
    'limited',
  ),
  counter('accept_pauses_total', 'Times that accepting stopped because descriptors had run out', 'pauses'),
];

/** On `/metrics`: one series for each Service port, times the reasons where there are some. */
export const SERVICE_PORT_FAMILIES: readonly SeriesFamily[] = [...SHARED, ...REFUSALS].map((family) => ({
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

function labelsOf({ name, protocol }: ListenerStats): string {
  const { namespace, service, portName: port } = partsOf(name);
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
