import type { Config } from '../config/config.ts';
import { effectiveConfiguration } from '../config/configuration-file.ts';
import { HttpServer } from '../http/http-server.ts';
import type { Metrics } from '../http/metrics.ts';
import { statusRoutes } from '../http/page/routes.ts';
import { type HealthzSources, healthzRoutes, metricsRoutes, profileRoutes } from '../http/routes.ts';
import { isWildcard } from '../model/address.ts';
import type { Operations, View } from '../model/view.ts';
import type { ConnectionFeed } from '../operate/connection-log/feed.ts';
import { ControlServer } from '../operate/control/server.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import type { Context } from './assemble.ts';

export interface Answering extends HealthzSources {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly view: View;
  readonly onUnbindable: () => void;
  readonly operations: Operations;
  readonly feed: ConnectionFeed;
  /** When the view knows every Service. */
  readonly known: Promise<void>;
  readonly configuration: Context['configuration'];
}

/** `/healthz`, `/metrics` and the control socket, to be started. */
export function serversOf(config: Config, answering: Answering): (HttpServer | ControlServer)[] {
  const { log, metrics, view, onUnbindable, operations, feed, known, configuration } = answering;
  const servers = [
    { name: 'healthz', at: config.healthzAddress, audience: 'anybody', routes: healthzRoutes(answering) },
    {
      name: 'metrics',
      at: config.metricsAddress,
      audience: 'operators',
      routes: new Map([
        ...metricsRoutes(metrics, () => effectiveConfiguration(config), configuration),
        ...(config.profiling ? profileRoutes(clock) : []),
        ...statusRoutes(view, clock),
      ]),
    },
  ] as const;
  const http = servers.flatMap(({ name, at, audience, routes }) => {
    if (at === undefined) return [];
    const server = new HttpServer({
      name,
      audience,
      routes,
      clock,
      log,
      // As Go listens, so that the kubelet's probe of a node that has only IPv6 is answered at the default of 0.0.0.0.
      address: isWildcard(at.address) ? undefined : at.address,
      port: at.port,
      hint: `see --${name}-bind-address`,
      ...(config.bindAddressHardFail && { onUnbindable }),
    });
    return [server];
  });
  const path = config.controlSocket;
  return path === undefined ? http : [...http, new ControlServer({ path, clock, log, view, operations, feed, known })];
}
