import type { ApiStatus } from '../model/source.ts';
import { goTime } from '../util/timestamp.ts';
import type { Health, HealthReport } from './health.ts';
import { type Handler, type HttpResponse, JSON_TYPE, type Routes, TEXT } from './http.ts';
import { atOnce } from './http-at-once.ts';
import type { Metrics } from './metrics.ts';
import { profileRoutes } from './profile-routes.ts';
import type { Profiler } from './profiler.ts';

/**
 * Scrapes of each path under way: Prometheus, its stand-in, a person and one who has gone away. With thousands of
 * Services each takes megabytes, and as long as its client takes to read it.
 */
const MAX_SCRAPES = 4;

/** What anybody may see: only times, nothing of Services. */
export function healthzRoutes({
  health,
  nodeEligible,
  apiStatus,
  metrics,
}: {
  readonly health: Health;
  /** `false` when load balancers are to send nothing to this node any more. */
  readonly nodeEligible: () => boolean;
  /** `undefined` without an API server. */
  readonly apiStatus: () => ApiStatus | undefined;
  readonly metrics: Pick<Metrics, 'healthAnswered'>;
}): Routes {
  const counted = (kind: 'healthz' | 'livez', healthy: boolean, body: string): HttpResponse => {
    const status = healthy ? 200 : 503;
    metrics.healthAnswered(kind, status);
    return { status, contentType: JSON_TYPE, body };
  };
  return new Map<string, Handler>([
    [
      '/healthz',
      () => {
        const report = health.report();
        const eligible = nodeEligible();
        const healthy = report.healthy && eligible;
        const api = apiStatus();
        const apiServer = api === undefined ? '' : `,"apiServer": ${apiJson(api)}`;
        return counted('healthz', healthy, `{${times(report, healthy)}, "nodeEligible": ${eligible}${apiServer}}`);
      },
    ],
    [
      '/livez',
      () => {
        const report = health.report();
        return counted('livez', report.healthy, `{${times(report, report.healthy)}}`);
      },
    ],
  ]);
}

/** For operators, on loopback by default. Bodies as kube-proxy's, without newlines. */
export function metricsRoutes({
  metrics,
  effectiveConfiguration,
  profiler,
}: {
  readonly metrics: Metrics;
  /** A KubeProxyConfiguration as kube-proxy shows its own: Go's field names, durations as text. */
  readonly effectiveConfiguration: () => object;
  /** `undefined` without `--profiling`. */
  readonly profiler: Profiler | undefined;
}): ReadonlyMap<string, Handler> {
  const text = (body: string): HttpResponse => ({ status: 200, contentType: TEXT, body });
  const { contentType } = metrics;
  const scrape = (render: () => AsyncIterable<string>): Handler => {
    const busy = { status: 503, contentType: TEXT, body: `${MAX_SCRAPES} others are being answered; try again.\n` };
    return atOnce(MAX_SCRAPES, busy, () => ({ status: 200, contentType, body: render() }));
  };
  return new Map<string, Handler>([
    ['/healthz', () => text('ok')],
    ['/proxyMode', () => text('userspace')],
    [
      '/configz',
      () => ({
        status: 200,
        contentType: JSON_TYPE,
        body: JSON.stringify({ 'kubeproxy.config.k8s.io': effectiveConfiguration() }),
      }),
    ],
    ['/metrics', scrape(() => metrics.render())],
    ['/metrics/endpoints', scrape(() => metrics.renderEndpoints())],
    ...(profiler === undefined ? [] : profileRoutes(profiler)),
  ]);
}

/**
 * As upstream's handlers print them (`pkg/proxy/healthcheck/proxy_health.go`). While healthy, `lastUpdated` is the time
 * of asking: checks written for old releases, which synced all the time, expect it recent.
 */
function times({ lastUpdated, now }: HealthReport, healthy: boolean): string {
  return `"lastUpdated": "${goTime(healthy ? now : lastUpdated)}","currentTime": "${goTime(now)}"`;
}

/**
 * Ours, and only shown: the last state is served for as long as the server is away, and restarting every proxy of the
 * cluster, or taking every node out of its load balancers, would not bring it back.
 */
function apiJson({ connected, staleForMs }: ApiStatus): string {
  return JSON.stringify({ connected, staleForSeconds: Math.round(staleForMs / 1_000) });
}
