import { Counter, collectDefaultMetrics, exponentialBuckets, Gauge, Histogram, Registry } from 'prom-client';
import type { ApiStatus } from '../contracts/api-status.ts';
import type { Clock } from '../contracts/clock.ts';
import type { ServicePortStats } from '../contracts/data-plane.ts';
import type { ApiRequestMetrics, SyncMetrics } from '../contracts/metrics.ts';
import type { Health } from './health.ts';
import { renderServicePorts } from './service-port-metrics.ts';

export interface MetricsOptions {
  readonly clock: Clock;
  readonly version: string;
  readonly health: Health;
  /** The data plane's counters, read at scrape time. */
  readonly stats: () => Iterable<ServicePortStats>;
  readonly droppedLogLines: () => number;
  /** `undefined` without an API server. */
  readonly apiStatus: () => ApiStatus | undefined;
}

/** Of `rest_client_request_duration_seconds` (`k8s.io/component-base/metrics/prometheus/restclient`). */
const API_REQUEST_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];

/**
 * What `/metrics` shows: kube-proxy's names and help texts for syncing (`pkg/proxy/metrics/metrics.go`), so that its
 * dashboards and alerts work; ours for Service ports; the process's own.
 */
export class Metrics implements SyncMetrics, ApiRequestMetrics {
  readonly #registry = new Registry();
  readonly #options: MetricsOptions;
  readonly #syncDuration: Histogram;
  readonly #lastQueued: Gauge;
  readonly #restoreFailures: Counter;
  readonly #changes: Readonly<Record<'service' | 'endpoint', Counter>>;
  readonly #apiRequests: Counter;
  readonly #apiRequestDuration: Histogram;

  constructor(options: MetricsOptions) {
    this.#options = options;
    const registers = [this.#registry];
    collectDefaultMetrics({ register: this.#registry });
    this.#syncDuration = new Histogram({
      name: 'kubeproxy_sync_proxy_rules_duration_seconds',
      help: 'SyncProxyRules latency in seconds',
      buckets: exponentialBuckets(0.001, 2, 15),
      registers,
    });
    new Gauge({
      name: 'kubeproxy_sync_proxy_rules_last_timestamp_seconds',
      help: 'The last time proxy rules were successfully synced',
      registers,
      collect() {
        this.set((options.health.report().lastUpdated?.wallMs ?? 0) / 1_000);
      },
    });
    this.#lastQueued = new Gauge({
      name: 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds',
      help: 'The last time a sync of proxy rules was queued',
      registers,
    });
    this.#restoreFailures = new Counter({
      name: 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total',
      help: 'Cumulative proxy iptables restore failures',
      registers,
    });
    this.#changes = {
      service: new Counter({
        name: 'kubeproxy_sync_proxy_rules_service_changes_total',
        help: 'Cumulative proxy rules Service changes',
        registers,
      }),
      endpoint: new Counter({
        name: 'kubeproxy_sync_proxy_rules_endpoint_changes_total',
        help: 'Cumulative proxy rules Endpoint changes',
        registers,
      }),
    };
    new Counter({
      name: 'userspace_proxy_log_lines_dropped_total',
      help: 'Log lines that could not be written',
      registers,
      collect() {
        this.reset();
        this.inc(options.droppedLogLines());
      },
    });
    this.#apiRequests = new Counter({
      name: 'rest_client_requests_total',
      help: 'Number of HTTP requests, partitioned by status code, method, and host.',
      labelNames: ['code', 'method', 'host'],
      registers,
    });
    this.#apiRequestDuration = new Histogram({
      name: 'rest_client_request_duration_seconds',
      help: 'Request latency in seconds. Broken down by verb, and host.',
      labelNames: ['verb', 'host'],
      buckets: API_REQUEST_BUCKETS,
      registers,
    });
    new Gauge({
      name: 'userspace_proxy_api_connected',
      help: 'Whether the API server is followed right now; 1 as well when there is none to follow',
      registers,
      collect() {
        this.set((options.apiStatus()?.connected ?? true) ? 1 : 0);
      },
    });
    new Gauge({
      name: 'userspace_proxy_api_stale_seconds',
      help: 'For how long changes on the API server may have been missed; 0 while it is followed',
      registers,
      collect() {
        this.set((options.apiStatus()?.staleForMs ?? 0) / 1_000);
      },
    });
    new Gauge({
      name: 'userspace_proxy_build_info',
      help: 'Always 1; the version of the proxy and of the Node that runs it',
      labelNames: ['version', 'nodejs_version'],
      registers,
    }).set({ version: options.version, nodejs_version: process.version }, 1);
  }

  requestDone({ method, host, code, durationMs }: Parameters<ApiRequestMetrics['requestDone']>[0]): void {
    this.#apiRequests.inc({ code, method, host });
    this.#apiRequestDuration.observe({ verb: method, host }, durationMs / 1_000);
  }

  changesQueued(): void {
    this.#lastQueued.set(this.#options.clock.wallNow() / 1_000);
  }

  syncDone(durationMs: number): void {
    this.#syncDuration.observe(durationMs / 1_000);
  }

  restoreFailed(): void {
    this.#restoreFailures.inc();
  }

  changed(kind: 'service' | 'endpoint', count: number): void {
    this.#changes[kind].inc(count);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Prometheus' text format, version 0.0.4. Rejects when the data plane's counters cannot be read. */
  async render(): Promise<string> {
    return (await this.#registry.metrics()) + renderServicePorts(this.#options.stats());
  }
}
