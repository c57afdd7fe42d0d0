import { readFileSync } from 'node:fs';

/** Prometheus' own: whether a target answered, and which alerts fire. */
const OF_PROMETHEUS = ['up', 'ALERTS'];

const KEYWORDS = ['and', 'or', 'unless', 'bool', 'offset'];

/** The metrics that a query reads. Meant for our own queries: comments and `__name__` are not understood. */
export function metricsIn(query: string): ReadonlySet<string> {
  const bare = query
    .replace(/"(?:[^"\\]|\\.)*"/g, '')
    .replace(/\{[^}]*\}|\[[^\]]*\]/g, ' ')
    .replace(/\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)/g, ' ');
  const names = [...bare.matchAll(/[a-zA-Z_:][\w:]*(?!\w*\s*\()/g)].map(([name]) => name);
  return new Set(names.filter((name) => !KEYWORDS.includes(name)));
}

interface Documented {
  readonly type: string;
  readonly labels: readonly string[];
}

/** The metrics of `docs/metrics.md`. */
const documented: ReadonlyMap<string, Documented> = new Map(
  [
    ...readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8').matchAll(
      /^\| `(\w+)` \| (counter|gauge|histogram) \|([^|]*)\|/gm,
    ),
  ].map(([, name = '', type = '', labels = '']) => [
    name,
    { type, labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label) },
  ]),
);

/** Whether `docs/metrics.md` lists the metric, or the histogram that it is a series of. */
export function isDocumented(metric: string): boolean {
  const histogram = documented.get(metric.replace(/_(?:bucket|sum|count)$/, ''));
  return OF_PROMETHEUS.includes(metric) || documented.has(metric) || histogram?.type === 'histogram';
}

/** Its labels, as far as they are documented. */
export function labelsOf(metric: string): readonly string[] {
  return documented.get(metric)?.labels ?? [];
}
