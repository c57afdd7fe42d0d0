import type { Config } from '../cli/config.ts';
import { effectiveConfiguration } from '../cli/configuration.ts';
import type { ApiStatus } from '../contracts/api-status.ts';
import type { Log } from '../contracts/log.ts';
import { systemClock as clock } from '../host/system-clock.ts';
import type { Health } from '../telemetry/health.ts';
import { HttpServer } from '../telemetry/http-server.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { Profiler } from '../telemetry/profiler.ts';
import { healthzRoutes, metricsRoutes } from '../telemetry/routes.ts';

const MAX_CONNECTIONS = 64;

export interface Observed {
  readonly log: Log;
  readonly health: Health;
  readonly metrics: Metrics;
  readonly apiStatus: () => ApiStatus | undefined;
  readonly nodeEligible: () => boolean;
  readonly onUnbindable: () => void;
}

/** `/healthz` and `/metrics`, to be started. */
export function httpServers(config: Config, { log, onUnbindable, ...observed }: Observed): HttpServer[] {
  const profiler = config.profiling ? new Profiler(clock) : undefined;
  const servers = [
    { name: 'healthz', at: config.healthzAddress, routes: healthzRoutes(observed) },
    {
      name: 'metrics',
      at: config.metricsAddress,
      routes: metricsRoutes({
        metrics: observed.metrics,
        effectiveConfiguration: () => effectiveConfiguration(config),
        profiler,
      }),
    },
  ];
  return servers.flatMap(({ name, at, routes }) => {
    if (at === undefined) return [];
    const hint = `see --${name}-bind-address`;
    const hardFail = config.bindAddressHardFail ? { onUnbindable } : {};
    return [new HttpServer({ name, ...at, hint, ...hardFail, routes, clock, log, maxConnections: MAX_CONNECTIONS })];
  });
}
