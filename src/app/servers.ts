import type { Config } from '../config/config.ts';
import { effectiveConfiguration } from '../config/configuration-file.ts';
import type { Health } from '../http/health.ts';
import { HttpServer } from '../http/http-server.ts';
import type { Metrics } from '../http/metrics.ts';
import { statusRoutes } from '../http/page/routes.ts';
import { healthzRoutes, metricsRoutes, profileRoutes } from '../http/routes.ts';
import { isWildcard } from '../model/address.ts';
import type { Operations } from '../model/operations.ts';
import type { ApiStatus } from '../model/source.ts';
import type { View } from '../model/view.ts';
import { ControlServer } from '../operate/control/server.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';

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

export interface Operated {
  readonly log: Log;
  readonly view: View;
  readonly operations: Operations;
  /** When the view knows every Service. */
  readonly known: Promise<void>;
}

/** `/healthz` and `/metrics`, to be started. */
export function httpServers(config: Config, { log, onUnbindable, ...observed }: Observed): HttpServer[] {
  const { metrics } = observed;
  const servers = [
    { name: 'healthz', at: config.healthzAddress, audience: 'anybody', routes: healthzRoutes(observed) },
    {
      name: 'metrics',
      at: config.metricsAddress,
      audience: 'operators',
      routes: new Map([
        ...metricsRoutes({ metrics, effectiveConfiguration: () => effectiveConfiguration(config) }),
        ...(config.profiling ? profileRoutes(clock) : []),
        ...statusRoutes(observed.view, clock),
      ]),
    },
  ] as const;
  return servers.flatMap(({ name, at, audience, routes }) => {
    if (at === undefined) return [];
    const server = new HttpServer({
      ...{ name, audience, routes, clock, log },
      // As Go listens, so that the kubelet's probe of a node that has only IPv6 is answered at the default of 0.0.0.0.
      address: isWildcard(at.address) ? undefined : at.address,
      port: at.port,
      hint: `see --${name}-bind-address`,
      ...(config.bindAddressHardFail && { onUnbindable }),
      maxConnections: MAX_CONNECTIONS,
    });
    return [server];
  });
}

/** None when the path is empty; to be started. */
export function controlServers({ controlSocket: path }: Config, operated: Operated): ControlServer[] {
  return path === undefined ? [] : [new ControlServer({ path, clock, ...operated })];
}
