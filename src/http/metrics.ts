import { Counter, Gauge, type Registry } from 'prom-client';
import type { ListenerStats } from '../model/data-plane.ts';
import type { LoopDelayMs } from '../model/metrics.ts';
import { partsOf, type ServicePortName } from '../model/service.ts';
import type { ApiServerStatus, ApiStatus } from '../model/source.ts';
import type { ConnectionLogCounts } from '../operate/connection-log/feed.ts';
import type { ProcessLog } from '../operate/log/log.ts';
import { KubeProxyMetrics, type KubeProxyMetricsOptions } from './kube-proxy-metrics.ts';
import { registerProcessMetrics } from './process-metrics.ts';
import {
  collectRows,
  ENDPOINT_FAMILIES,
  endpointRows,
  OTHER_ENDPOINTS,
  OTHER_SERVICE_PORTS,
  printSeries,
  SERVICE_PORT_FAMILIES,
  servicePortRows,
} from './service-port-metrics.ts';

export interface MetricsOptions extends KubeProxyMetricsOptions {
  readonly version: string;
  /** The data plane's counters, read at scrape time. */
  readonly stats: () => Iterable<ListenerStats>;
  readonly log: Pick<ProcessLog, 'lines' | 'droppedLines'>;
  readonly connectionLog: () => ConnectionLogCounts;
  /** Calls for pods. A name that is `undefined` stands for Service ports beyond a bound. */
  readonly wakeCalls: () => ReadonlyMap<ServicePortName | undefined, number> | undefined;
  /** `undefined` without an API server. */
  readonly apiStatus: () => ApiStatus | undefined;
  /** Also without `--config`. */
  readonly configInForce: () => boolean;
  /** Since it was called last; `undefined` when nothing was measured. */
  readonly takeLoopDelay: () => LoopDelayMs | undefined;
  /** Service ports, and endpoints, with series of their own; {@link MAX_ROWS} by default. */
  readonly maxRows?: number;
}

/**
 * Twice the Service ports that the proxy is made for, some 300,000 series. The bound protects Prometheus from users who
 * create Services without end.
 */
const MAX_ROWS = 20_000;

const API_SERVER_GAUGES: readonly (readonly [
  name: string,
  help: string,
  /** `undefined`: it has no such series. */
  read: (server: ApiServerStatus) => number | undefined,
])[] = [
  [
    'used',
    '1 for the API server that is used; it may be out of reach',
    ({ usedSince }) => (usedSince === undefined ? 0 : 1),
  ],
  [
    'used_since_timestamp_seconds',
    'When the API server that is used came into use, since 1970',
    ({ usedSince }) => usedSince && usedSince / 1_000,
  ],
  [
    'usable',
    '0 for an API server that could not be used when it was asked last, of several; each is asked every 5 to 10 minutes',
    ({ failure }) => (failure === undefined ? 1 : 0),
  ],
];

/** Of the series for all beyond a bound. */
const NOBODY = { namespace: '', service: '', portName: '' };

/**
 * What `/metrics` shows: kube-proxy's metrics and client-go's under their names; this program's own for Service ports;
 * the process's own. `docs/metrics.md` lists them all.
 */
export class Metrics extends KubeProxyMetrics {
  readonly #registry: Registry;
  readonly #stats: () => Iterable<ListenerStats>;
  readonly #maxRows: number;

  constructor({ maxRows = MAX_ROWS, ...options }: MetricsOptions) {
    super(options);
    const { registry, version, stats, log, apiStatus, configInForce, takeLoopDelay, connectionLog, wakeCalls } =
      options;
    this.#registry = registry;
    this.#stats = stats;
    this.#maxRows = maxRows;
    const registers = [registry];
    const gauge = (name: string, help: string, value: () => number) =>
      new Gauge({
        name: `userspace_proxy_${name}`,
        help,
        registers,
        collect() {
          this.set(value());
        },
      });
    /** Shows what is counted elsewhere: one number, or one for each value of a label. */
    const counted = (name: string, help: string, value: () => number | Readonly<Record<string, number>>, label = '') =>
      new Counter({
        name: `userspace_proxy_${name}`,
        help,
        registers,
        labelNames: label === '' ? [] : [label],
        collect() {
          this.reset();
          const now = value();
          if (typeof now === 'number') this.inc(now);
          else for (const [key, count] of Object.entries(now)) this.inc({ [label]: key }, count);
        },
      });
    new Gauge({
      name: 'userspace_proxy_build_info',
      help: 'Always 1; the version of the proxy and of the Node that runs it',
      labelNames: ['version', 'nodejs_version'],
      registers,
    }).set({ version, nodejs_version: process.version }, 1);
    gauge('api_connected', '1 while the API server is followed, or when there is none to follow', () =>
      (apiStatus()?.connected ?? true) ? 1 : 0,
    );
    gauge(
      'api_stale_seconds',
      'For how long changes on the API server may have been missed; 0 while it is followed',
      () => (apiStatus()?.staleForMs ?? 0) / 1_000,
    );
    for (const [name, help, read] of API_SERVER_GAUGES) {
      new Gauge({
        name: `userspace_proxy_api_server_${name}`,
        help,
        registers,
        labelNames: ['server'],
        collect() {
          this.reset();
          for (const server of apiStatus()?.servers ?? []) {
            const value = read(server);
            if (value !== undefined) this.set({ server: server.server }, value);
          }
        },
      });
    }
    gauge(
      'state_age_seconds',
      'The age of the state on disk that is served because the API server has not answered since the start, or 0',
      () => {
        const of = apiStatus()?.servedStateOf;
        // A machine without a battery may think that it is earlier.
        return of === undefined ? 0 : Math.max(0, options.clock.wallNow() - of) / 1_000;
      },
    );
    gauge('config_in_force', '1 while what the file of --config says is in force, or when there is none', () =>
      configInForce() ? 1 : 0,
    );
    counted(
      'log_lines_total',
      'Log lines by level (error, warn, info), those that could not be written too',
      () => log.lines,
      'level',
    );
    counted('log_lines_dropped_total', 'Log lines that could not be written', () => log.droppedLines);
    counted(
      'connection_log_entries_total',
      'Entries of the connection log, dropped ones too, while --connection-log or a tail wanted them',
      () => connectionLog().entries,
    );
    counted(
      'connection_log_dropped_total',
      'Entries of the connection log that were dropped, by place: engine, file, tail (each reader counts)',
      () => connectionLog().dropped,
      'at',
    );
    new Counter({
      name: 'userspace_proxy_wake_calls_total',
      help: 'NeedPods events for a Service port without endpoints while clients waited',
      registers,
      labelNames: ['namespace', 'service', 'port'],
      collect() {
        this.reset();
        for (const [name, count] of wakeCalls() ?? []) {
          const { namespace, service, portName: port } = name === undefined ? NOBODY : partsOf(name);
          this.inc({ namespace, service, port }, count);
        }
      },
    });
    registerProcessMetrics(registry, takeLoopDelay);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /**
   * Prometheus' text format, version 0.0.4, in parts that never hold up the event loop. Rejects when the data plane's
   * counters cannot be read.
   */
  async render(): Promise<AsyncIterable<string>> {
    const rows = servicePortRows(this.#stats());
    const collected = await collectRows(rows, { max: this.#maxRows, others: OTHER_SERVICE_PORTS });
    const others = await this.#registry.metrics();
    return (async function* () {
      yield others;
      yield* printSeries(SERVICE_PORT_FAMILIES, collected);
    })();
  }

  /**
   * The same for each endpoint of each Service port, and nothing else: so many series that they are only on request.
   */
  async renderEndpoints(): Promise<AsyncIterable<string>> {
    const rows = endpointRows(this.#stats());
    return printSeries(ENDPOINT_FAMILIES, await collectRows(rows, { max: this.#maxRows, others: OTHER_ENDPOINTS }));
  }
}
