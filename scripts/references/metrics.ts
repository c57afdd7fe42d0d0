import { ApiRequests } from '../../src/http/api-requests.ts';
import {
  ENDPOINT_FAMILIES,
  OTHER_ENDPOINTS,
  OTHER_SERVICE_PORTS,
  SERVICE_PORT_FAMILIES,
  type SeriesFamily,
} from '../../src/http/service-port-metrics.ts';
import { metricsOf } from '../../test/http/metrics-of.ts';
import type { Blocks } from './blocks.ts';
import { code, table, words } from './table.ts';

export interface DescribedMetric {
  readonly name: string;
  /** `counter` … */
  readonly type: string;
  readonly labels: readonly string[];
  readonly help: string;
}

/** Whose metrics have names that others know. */
const OF_KUBE_PROXY = /^(kubeproxy|rest_client)_/;

/** Every metric that the program can show, as it is registered, by what it is about. */
export function describeMetrics(): Readonly<Record<string, readonly DescribedMetric[]>> {
  const apiRequests = new ApiRequests();
  const { registry } = apiRequests;
  metricsOf(() => [], apiRequests);
  // prom-client's types leave out the names of the labels.
  const registered = (registry.getMetricsAsArray() as unknown as (DescribedMetric & { labelNames: string[] })[]).map(
    ({ name, type, labelNames: labels, help }) => ({ name, type, labels, help }),
  );
  return {
    'kube-proxy': registered.filter(({ name }) => OF_KUBE_PROXY.test(name)),
    'service-ports': SERVICE_PORT_FAMILIES.map((family) => describeFamily(family, OTHER_SERVICE_PORTS)),
    endpoints: ENDPOINT_FAMILIES.map((family) => describeFamily(family, OTHER_ENDPOINTS)),
    process: registered.filter(({ name }) => !OF_KUBE_PROXY.test(name)),
  };
}

/** A metric whose series all have the labels of this one, as it is printed. */
function describeFamily({ name, type, help, series }: SeriesFamily, example: string): DescribedMetric {
  const labels = [...example.matchAll(/(\w+)="/g)].map(([, label = '']) => label);
  const own = series.some(({ label }) => label?.name === 'reason') ? ['reason'] : [];
  return { name, type, help, labels: [...labels, ...own] };
}

export function metricTables(): Blocks {
  return Object.fromEntries(
    Object.entries(describeMetrics()).map(([section, metrics]) => [
      section,
      table(
        ['name', 'type', 'labels', 'meaning'],
        metrics.map(({ name, type, labels, help }) => [code(name), type, labels.map(code).join(', '), words(help)]),
      ),
    ]),
  );
}
