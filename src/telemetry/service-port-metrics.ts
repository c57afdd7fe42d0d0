import type { Counter, ServicePortStats } from '../contracts/data-plane.ts';

/** One metric: its series are the Service ports, times the value of one more label where there is one. */
interface Family {
  readonly name: string;
  readonly type: 'counter' | 'gauge';
  readonly help: string;
  readonly series: readonly { readonly counter: Counter; readonly label?: string; readonly unitsPerCount?: number }[];
}

const PREFIX = 'userspace_proxy_';

const FAMILIES: readonly Family[] = [
  {
    name: 'connections_total',
    type: 'counter',
    help: 'TCP connections accepted and UDP flows begun',
    series: [{ counter: 'connections' }],
  },
  {
    name: 'connections_active',
    type: 'gauge',
    help: 'TCP connections and UDP flows that are open now',
    series: [{ counter: 'active' }],
  },
  {
    name: 'received_bytes_total',
    type: 'counter',
    help: 'Payload bytes received from clients',
    series: [{ counter: 'receivedBytes' }],
  },
  {
    name: 'sent_bytes_total',
    type: 'counter',
    help: 'Payload bytes sent to clients',
    series: [{ counter: 'sentBytes' }],
  },
  {
    name: 'connects_total',
    type: 'counter',
    help: 'Connects to an endpoint that were answered; divides connect_seconds_total into a mean',
    series: [{ counter: 'connects' }],
  },
  {
    name: 'connect_seconds_total',
    type: 'counter',
    help: 'Time that the answered connects took together',
    series: [{ counter: 'connectMs', unitsPerCount: 1 / 1_000 }],
  },
  {
    name: 'connect_retries_total',
    type: 'counter',
    help: 'Connects to a further endpoint after one had failed',
    series: [{ counter: 'retries' }],
  },
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
  {
    name: 'turned_away_total',
    type: 'counter',
    help: 'Clients that got no endpoint: there was none, or every try failed',
    series: [
      { counter: 'noEndpoints', label: 'reason="no-endpoints"' },
      { counter: 'exhausted', label: 'reason="exhausted"' },
    ],
  },
  {
    name: 'limited_total',
    type: 'counter',
    help: 'UDP flows and datagrams refused because a bound was reached',
    series: [{ counter: 'limited' }],
  },
  {
    name: 'accept_pauses_total',
    type: 'counter',
    help: 'Times that accepting stopped because descriptors had run out',
    series: [{ counter: 'pauses' }],
  },
];

/**
 * The counters of every Service port in Prometheus' text format. Written by hand: the values live in the data plane
 * already; prom-client would keep a second copy of each series, take long over rendering it, and need to be told which
 * Service ports have gone.
 */
export function renderServicePorts(stats: Iterable<ServicePortStats>): string {
  const ports = Array.from(stats, (port) => ({ labels: labelsOf(port), counters: port.counters }));
  let text = '';
  for (const { name, type, help, series } of FAMILIES) {
    text += `# HELP ${PREFIX}${name} ${help}\n# TYPE ${PREFIX}${name} ${type}\n`;
    for (const { labels, counters } of ports) {
      for (const { counter, label, unitsPerCount = 1 } of series) {
        const value = counters[counter] * unitsPerCount;
        text += `${PREFIX}${name}{${labels}${label === undefined ? '' : `,${label}`}} ${value}\n`;
      }
    }
  }
  return text;
}

/** Splits the printed ServicePortName: `namespace/service`, or `namespace/service:port`. */
function labelsOf({ name, protocol }: ServicePortStats): string {
  const [, namespace = '', service = '', port = ''] = /^([^/]*)\/([^:]*):?(.*)$/s.exec(name) ?? [];
  return `namespace="${escaped(namespace)}",service="${escaped(service)}",port="${escaped(port)}",protocol="${protocol}"`;
}

/** Names are validated long before; a line that they could break would take the whole scrape with it. */
function escaped(value: string): string {
  return value.replace(/[\\"\n]/g, (character) => (character === '\n' ? '\\n' : `\\${character}`));
}
