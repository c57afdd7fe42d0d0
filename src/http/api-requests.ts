import { Counter, Histogram, Registry } from 'prom-client';
import type { ApiRequestMetrics } from '../model/metrics.ts';

/** Of `rest_client_request_duration_seconds` (`k8s.io/component-base/metrics/prometheus/restclient`). */
const BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];

/** client-go's metrics. They exist before all others: the source of Services, which the others ask, reports to them. */
export class ApiRequests implements ApiRequestMetrics {
  readonly registry = new Registry();
  readonly #count = new Counter({
    name: 'rest_client_requests_total',
    help: 'Requests to the API server, by status code (<error> without an answer), method and host',
    labelNames: ['code', 'method', 'host'],
    registers: [this.registry],
  });
  readonly #duration = new Histogram({
    name: 'rest_client_request_duration_seconds',
    help: "Time until the head of the API server's answer, by verb and host",
    labelNames: ['verb', 'host'],
    buckets: BUCKETS,
    registers: [this.registry],
  });

  requestDone({ method, host, code, durationMs }: Parameters<ApiRequestMetrics['requestDone']>[0]): void {
    this.#count.inc({ code, method, host });
    this.#duration.observe({ verb: method, host }, durationMs / 1_000);
  }
}
