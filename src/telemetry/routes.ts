import type { ApiStatus } from '../contracts/api-status.ts';
import type { Health } from './health.ts';
import type { Metrics } from './metrics.ts';
import { goTime } from './timestamp.ts';

export interface HttpResponse {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** By path. A handler that throws or rejects is answered with 500. */
export type Routes = ReadonlyMap<string, () => HttpResponse | Promise<HttpResponse>>;

export const TEXT = 'text/plain; charset=utf-8';

/** What anybody may see: only times, nothing of Services or of the node. */
export function healthzRoutes(health: Health, apiStatus: () => ApiStatus | undefined): Routes {
  return new Map([['/healthz', () => healthz(health, apiStatus())]]);
}

/** For operators, on loopback by default. Bodies as kube-proxy's, without newlines. */
export function metricsRoutes(metrics: Metrics): Routes {
  return new Map<string, () => HttpResponse | Promise<HttpResponse>>([
    ['/healthz', () => ({ status: 200, contentType: TEXT, body: 'ok' })],
    ['/proxyMode', () => ({ status: 200, contentType: TEXT, body: 'userspace' })],
    ['/metrics', async () => ({ status: 200, contentType: metrics.contentType, body: await metrics.render() })],
  ]);
}

/**
 * Body and codes of upstream's `healthzHandler` (`pkg/proxy/healthcheck/proxier_health.go`). While healthy,
 * `lastUpdated` is the time of asking: checks written for old releases, which synced all the time, expect it recent.
 *
 * With an API server there is a third field. It does not count for the status code: the last state is served for as long
 * as the server is away, and restarting every proxy of the cluster would not bring it back.
 */
function healthz(health: Health, api: ApiStatus | undefined): HttpResponse {
  const { healthy, lastUpdated, now } = health.report();
  const times = `"lastUpdated": "${goTime(healthy ? now : lastUpdated)}","currentTime": "${goTime(now)}"`;
  const body = api === undefined ? `{${times}}` : `{${times},"apiServer": ${apiJson(api)}}`;
  return { status: healthy ? 200 : 503, contentType: 'application/json', body };
}

function apiJson({ connected, staleForMs }: ApiStatus): string {
  return JSON.stringify({ connected, staleForSeconds: Math.round(staleForMs / 1_000) });
}
