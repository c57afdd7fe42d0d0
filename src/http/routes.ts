import { Session } from 'node:inspector/promises';
import type { ApiStatus } from '../model/source.ts';
import { servingStateOf } from '../model/view.ts';
import type { Clock } from '../util/clock.ts';
import { goTime } from '../util/timestamp.ts';
import { sleep } from '../util/wait.ts';
import type { Health, HealthReport } from './health.ts';
import { atOnce, type Handler, type HttpResponse, JSON_TYPE, textResponse } from './http-server.ts';
import type { Metrics } from './metrics.ts';

/* What the two addresses of kube-proxy answer: healthz, metrics. The status page beside the metrics is in page/. */

export type RouteList = readonly (readonly [path: string, Handler])[];

export interface HealthzSources {
  readonly health: Health;
  /** `false` when load balancers must not send anything to this node any more. */
  readonly nodeEligible: () => boolean;
  /** `undefined` without an API server. */
  readonly apiStatus: () => ApiStatus | undefined;
  readonly metrics: Pick<Metrics, 'healthAnswered'>;
}

/** For anybody: only times, nothing about Services. */
export function healthzRoutes(of: HealthzSources): ReadonlyMap<string, Handler> {
  const { health, nodeEligible, apiStatus, metrics } = of;
  const answer = (kind: 'healthz' | 'livez', healthy: boolean, body: string): HttpResponse => {
    const status = healthy ? 200 : 503;
    metrics.healthAnswered(kind, status);
    return { status, contentType: JSON_TYPE, body };
  };
  const healthz = () => {
    const report = health.report();
    const eligible = nodeEligible();
    const healthy = report.healthy && eligible;
    const api = apiStatus();
    const apiServer = api === undefined ? '' : `,"apiServer": ${apiJson(api)}`;
    return answer('healthz', healthy, `{${times(report, healthy)}, "nodeEligible": ${eligible}${apiServer}}`);
  };
  const livez = () => {
    const report = health.report();
    return answer('livez', report.healthy, `{${times(report, report.healthy)}}`);
  };
  return new Map(Object.entries({ '/healthz': healthz, '/livez': livez }));
}

/**
 * As upstream's handlers print them (`pkg/proxy/healthcheck/proxy_health.go`). While healthy, `lastUpdated` is the time
 * of the request: checks written for old releases, which synced all the time, expect it to be recent.
 */
function times({ lastUpdated, now }: HealthReport, healthy: boolean): string {
  return `"lastUpdated": "${goTime(healthy ? now : lastUpdated)}","currentTime": "${goTime(now)}"`;
}

/**
 * Our addition. It is only shown: the last state is served while the API server is away, and restarting every proxy of
 * the cluster, or taking every node out of its load balancers, would not bring the server back.
 */
function apiJson({ connected, staleForMs, servedStateOf }: ApiStatus): string {
  const staleForSeconds = Math.round(staleForMs / 1_000);
  return JSON.stringify({
    connected,
    staleForSeconds,
    ...(servedStateOf !== undefined && { state: servingStateOf(servedStateOf) }),
  });
}

/**
 * Scrapes of each path under way: Prometheus, its replica, a person and one that has gone away. With thousands of
 * Services each takes megabytes, for as long as its client reads it.
 */
const MAX_SCRAPES = 4;

/**
 * For operators, on loopback by default. Bodies as kube-proxy's, without newlines. `effectiveConfiguration`: a
 * KubeProxyConfiguration as kube-proxy shows its own, with Go's field names and durations as text. `file`: that of
 * `--config`, which kube-proxy does not show.
 */
export function metricsRoutes(
  metrics: Metrics,
  effectiveConfiguration: () => object,
  file?: { readonly path: string; readonly isInForce: boolean },
): RouteList {
  const { contentType } = metrics;
  const busy = textResponse(503, `${MAX_SCRAPES} others are being answered; try again.\n`);
  const scrape = (render: () => Promise<AsyncIterable<string>>): Handler =>
    atOnce(MAX_SCRAPES, busy)(async () => ({ status: 200, contentType, body: await render() }));
  const configz = () =>
    JSON.stringify({
      'kubeproxy.config.k8s.io': effectiveConfiguration(),
      'kube-userspace-proxy': file && { configFile: file.path, inForce: file.isInForce },
    });
  return [
    ['/healthz', () => textResponse(200, 'ok')],
    ['/proxyMode', () => textResponse(200, 'userspace')],
    ['/configz', () => ({ status: 200, contentType: JSON_TYPE, body: configz() })],
    ['/metrics', scrape(() => metrics.render())],
    ['/metrics/endpoints', scrape(() => metrics.renderEndpoints())],
  ];
}

const MAX_PROFILE_SECONDS = 60;
/** Of Go's `/debug/pprof/profile`. */
const DEFAULT_PROFILE_SECONDS = 30;

const CPU_PATH = '/debug/v8/cpu-profile';
const HEAP_PATH = '/debug/v8/heap-profile';

const POINTER =
  'This proxy is no Go program, so there are no pprof profiles.\n' +
  `V8's are at ${CPU_PATH}?seconds=${DEFAULT_PROFILE_SECONDS} and ${HEAP_PATH}?seconds=${DEFAULT_PROFILE_SECONDS}: save them as\n` +
  'NAME.cpuprofile and NAME.heapprofile, and open them in the DevTools of Chrome or in speedscope.\n';

/** Where kube-proxy's users look first; Go's pprof tool prints the body of the 404. */
const GO_PATHS = ['/debug/pprof', '/debug/pprof/', '/debug/pprof/profile', '/debug/pprof/heap', '/debug/pprof/trace'];

/** The inspector's commands. */
const PROFILES = {
  cpu: { start: ['Profiler.enable', 'Profiler.start'], stop: 'Profiler.stop' },
  heap: { start: ['HeapProfiler.startSampling'], stop: 'HeapProfiler.stopSampling' },
} as const;

/**
 * `--profiling`: V8's sampling profiles of the main thread (control plane and `node` engine, not the threads of the
 * fast one), under paths of our own because the formats are not Go's. One at a time: each costs a few percent of the
 * thread, and its samples stay in memory until it ends.
 */
export function profileRoutes(clock: Clock): RouteList {
  let isBusy = false;
  const profile =
    (kind: keyof typeof PROFILES): Handler =>
    async ({ query, signal }) => {
      const seconds = Number(/^\d{1,2}$/.exec(query.get('seconds') ?? `${DEFAULT_PROFILE_SECONDS}`)?.[0] ?? 0);
      if (seconds < 1 || seconds > MAX_PROFILE_SECONDS) {
        return textResponse(400, `seconds must be a whole number from 1 to ${MAX_PROFILE_SECONDS}.\n`);
      }
      if (isBusy) {
        return textResponse(429, `Another profile is being taken; ask again within ${MAX_PROFILE_SECONDS} seconds.\n`);
      }
      isBusy = true;
      const session = new Session();
      try {
        session.connect();
        for (const command of PROFILES[kind].start) await session.post(command);
        await sleep(seconds * 1_000, clock, signal);
        const result: unknown = await session.post(PROFILES[kind].stop);
        const headers = { 'Content-Disposition': `attachment; filename="kube-userspace-proxy.${kind}profile"` };
        return {
          status: 200,
          contentType: JSON_TYPE,
          headers,
          body: JSON.stringify((result as { profile: object }).profile),
        };
      } finally {
        session.disconnect();
        isBusy = false;
      }
    };
  const goPaths = GO_PATHS.map((path) => [path, () => textResponse(404, POINTER)] as const);
  return [[CPU_PATH, profile('cpu')], [HEAP_PATH, profile('heap')], ...goPaths];
}
