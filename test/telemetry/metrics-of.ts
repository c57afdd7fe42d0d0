import { Health } from '../../src/telemetry/health.ts';
import { Metrics, type MetricsOptions } from '../../src/telemetry/metrics.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

/** The metrics of a program that has these listeners and nothing else to tell. */
export function metricsOf(stats: MetricsOptions['stats']): Metrics {
  const clock = new ManualClock();
  return new Metrics({
    clock,
    version: '1',
    health: new Health(clock, 60_000),
    families: ['IPv4'],
    pendingServices: () => 0,
    stats,
    droppedLogLines: () => 0,
    apiStatus: () => undefined,
  });
}
