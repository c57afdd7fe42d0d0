import type { Config } from '../config/config.ts';
import { effectiveConfiguration } from '../config/configuration-file.ts';
import { VERSION } from '../config/version.ts';
import { type ApiOptions, apiRoutes } from '../http/api-routes.ts';
import { HttpServer, type HttpServerOptions } from '../http/http-server.ts';
import type { Metrics } from '../http/metrics.ts';
import { statusRoutes } from '../http/page/routes.ts';
import { type HealthzSources, healthzRoutes, metricsRoutes, profileRoutes, type RouteList } from '../http/routes.ts';
import { isWildcard } from '../model/address.ts';
import type { Operations, View } from '../model/view.ts';
import type { ConnectionFeed } from '../operate/connection-log/feed.ts';
import { answersOf } from '../operate/control/answers.ts';
import type { Clock } from '../util/clock.ts';
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

/**
 * Answers under way at the control socket. Of connections there may be more, so that whoever comes beyond it reads that
 * others are being answered.
 */
export const MAX_OPERATORS = 16;
/** Answers of /v1 under way at the address of the metrics. */
const MAX_ANSWERS = 4;

/** For clients of 0.1.0, which send a line of JSON. */
const OTHER_RELEASE = `the running proxy (v${VERSION}) is of a later release than this command; use the program of the same release`;

/** `/healthz`, `/metrics` and the control socket, to be started. */
export function serversOf(config: Config, answering: Answering): HttpServer[] {
  const { log, metrics, view, onUnbindable, operations, feed, known, configuration } = answering;
  const api = { answers: answersOf({ view, operations, feed, log, clock }), known, log };
  const servers: HttpServer[] = [];
  const open = (
    name: string,
    at: Config['healthzAddress'],
    options: Pick<HttpServerOptions, 'audience' | 'routes'>,
  ) => {
    if (at === undefined) return;
    const hint = `see --${name}-bind-address`;
    // As Go listens, so that the kubelet's probe of a node that has only IPv6 is answered at the default of 0.0.0.0.
    const place = { address: isWildcard(at.address) ? undefined : at.address, port: at.port };
    const { audience, routes } = options;
    const failing = config.bindAddressHardFail ? { onUnbindable } : {};
    servers.push(new HttpServer({ name, place, hint, audience, routes, clock, log, ...failing }));
  };
  const status = () => [
    ...metricsRoutes(metrics, () => effectiveConfiguration(config), configuration),
    ...statusRoutes(view, clock),
  ];
  open('healthz', config.healthzAddress, { audience: 'anybody', routes: healthzRoutes(answering) });
  const profiles = config.profiling ? profileRoutes(clock) : [];
  const routes = new Map([...status(), ...apiRoutes('GET', { ...api, maxAtOnce: MAX_ANSWERS }), ...profiles]);
  open('metrics', config.metricsAddress, { audience: 'operators', routes });
  const path = config.controlSocket;
  if (path !== undefined) servers.push(controlServer({ path, routes: status(), ...api, clock }));
  return servers;
}

export interface ControlOptions extends Omit<ApiOptions, 'maxAtOnce'> {
  readonly path: string;
  /** What it answers beside /v1. */
  readonly routes: RouteList;
  readonly clock: Clock;
}

export function controlServer({ path, routes, clock, ...api }: ControlOptions): HttpServer {
  const options = { ...api, maxAtOnce: MAX_OPERATORS };
  return new HttpServer({
    name: 'control',
    place: { path },
    hint: 'subcommands do not reach this process; see --control-socket',
    audience: 'operators',
    routes: new Map([...routes, ...apiRoutes('GET', options)]),
    posts: new Map(apiRoutes('POST', options)),
    answerToJson: `${JSON.stringify({ error: OTHER_RELEASE })}\n`,
    clock,
    log: api.log,
  });
}
