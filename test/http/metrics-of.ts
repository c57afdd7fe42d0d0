import { ApiRequests } from '../../src/http/api-requests.ts';
import { Health } from '../../src/http/health.ts';
import { Metrics, type MetricsOptions } from '../../src/http/metrics.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

/** The metrics of a program with these listeners. */
export function metricsOf(stats: MetricsOptions['stats'], { registry } = new ApiRequests()): Metrics {
  const clock = new ManualClock();
  return new Metrics({
    clock,
    version: '1',
    health: new Health(clock, 60_000),
    families: ['IPv4'],
    tables: ['nat', 'filter'],
    pendingServices: () => 0,
    wakeCalls: () => undefined,
    connectionLog: () => ({ entries: 0, dropped: { engine: 0, file: 0, tail: 0 } }),
    stats,
    log: { lines: { error: 0, warn: 0, info: 0 }, droppedLines: 0 },
    apiStatus: () => undefined,
    configInForce: () => true,
    takeLoopDelay: () => undefined,
    registry,
  });
}
