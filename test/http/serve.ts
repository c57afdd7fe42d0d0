import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { HttpServer, type HttpServerOptions, type Routes } from '../../src/http/http-server.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { until } from '../support/until.ts';

/** A server on loopback with these routes; closed when the test is over. */
export async function serve(
  t: TestContext,
  routes: Routes,
  { maxConnections = 16, audience = 'operators' }: Partial<Pick<HttpServerOptions, 'maxConnections' | 'audience'>> = {},
) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const server = new HttpServer({
    name: 'metrics',
    place: { address: '127.0.0.1', port: 0 },
    hint: 'see --metrics-bind-address',
    maxConnections,
    audience,
    routes,
    clock,
    log,
  });
  server.start();
  t.after(() => server.close());
  await until('the server listens', () => server.address !== undefined);
  return { log, server, address: server.address as AddressInfo, clock };
}
