import type { Config } from '../cli/config.ts';
import { effectiveConfiguration } from '../cli/configuration.ts';
import type { ApiStatus } from '../contracts/api-status.ts';
import type { Log } from '../contracts/log.ts';
import type { View } from '../contracts/view.ts';
import { systemClock as clock } from '../host/system-clock.ts';
import { isWildcard } from '../model/address.ts';
import { statusRoutes } from '../status/routes.ts';
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
  readonly view: View;
  readonly nodeEligible: () => boolean;
  readonly onUnbindable: () => void;
}

/** `/healthz` and `/metrics`, to be started. */
export function httpServers(config: Config, { log, onUnbindable, ...observed }: Observed): HttpServer[] {
  const profiler = config.profiling ? new Profiler(clock) : undefined;
  const servers = [
    { name: 'healthz', at: config.healthzAddress, audience: 'anybody', routes: healthzRoutes(observed) },
    {
      name: 'metrics',
      at: config.metricsAddress,
      audience: 'operators',
      routes: new Map([
        ...metricsRoutes({
          metrics: observed.metrics,
          effectiveConfiguration: () => effectiveConfiguration(config),
          profiler,
        }),
        ...statusRoutes(observed.view, clock),
      ]),
    },
  ] as const;
  return servers.flatMap(({ name, at, audience, routes }) => {
    if (at === undefined) return [];
    const hint = `see --${name}-bind-address`;
    const hardFail = config.bindAddressHardFail ? { onUnbindable } : {};
    // As Go listens, so that the kubelet's probe of a node that has only IPv6 is answered at the default of 0.0.0.0.
    const address = isWildcard(at.address) ? undefined : at.address;
    return [
      new HttpServer({
        name,
        address,
        port: at.port,
        hint,
        ...hardFail,
        audience,
        routes,
        clock,
        log,
        maxConnections: MAX_CONNECTIONS,
      }),
    ];
  });
}
