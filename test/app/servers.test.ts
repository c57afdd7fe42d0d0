import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { serversOf } from '../../src/app/servers.ts';
import { Health } from '../../src/http/health.ts';
import type { HttpServer } from '../../src/http/http-server.ts';
import { ConnectionFeed } from '../../src/operate/connection-log/feed.ts';
import { FakeDataPlane } from '../fakes/fake-data-plane.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { ask } from '../http/http-client.ts';
import { metricsOf } from '../http/metrics-of.ts';
import { parseCommandLine } from '../support/command-line.ts';
import { address } from '../support/model.ts';
import { until } from '../support/until.ts';

const LOOPBACK = address('127.0.0.1');

/** Those of HTTP, at this port of loopback. */
function start(t: TestContext, flags: readonly string[], port: number, onUnbindable: () => void): HttpServer[] {
  const line = parseCommandLine(['--manifests', '/etc/services', ...flags]);
  assert.ok(line.kind === 'run');
  const at = { address: LOOPBACK, port };
  const servers = serversOf(
    { ...line.config, healthzAddress: at, metricsAddress: at, controlSocket: undefined },
    {
      log: new RecordingLog(),
      health: new Health(new ManualClock(), 60_000),
      metrics: metricsOf(() => []),
      apiStatus: () => undefined,
      view: new FakeView(),
      nodeEligible: () => true,
      onUnbindable,
      operations: { setVerbosity: () => {}, weightOf: () => undefined, setWeight: () => true, undrain: () => false },
      feed: new ConnectionFeed({ dataPlane: new FakeDataPlane(), log: new RecordingLog(), clock: new ManualClock() }),
      known: Promise.resolve(),
      configuration: undefined,
    },
  ) as HttpServer[];
  t.after(() => Promise.all(servers.map((server) => server.close())));
  for (const server of servers) server.start();
  return servers;
}

/** The addresses of both, at ports that are free. */
async function serve(t: TestContext, ...flags: readonly string[]) {
  const servers = start(t, flags, 0, () => assert.fail('there is always a free port'));
  await until('both listen', () => servers.every(({ address }) => address !== undefined));
  const [healthz, metrics] = servers.map(({ address }) => address as AddressInfo) as [AddressInfo, AddressInfo];
  return { healthz, metrics };
}

test('/healthz answers requests from any site; /metrics and the status do not', async (t) => {
  const { healthz, metrics } = await serve(t);
  for (const headers of [{ Host: 'node-1:10256' }, { 'Sec-Fetch-Site': 'cross-site' }]) {
    const status = async (address: AddressInfo, path: string) => (await ask(address, path, 'GET', headers)).status;
    for (const path of ['/healthz', '/livez']) assert.equal(await status(healthz, path), 200, path);
    for (const path of ['/metrics', '/status.json', '/healthz']) assert.equal(await status(metrics, path), 403, path);
  }
  assert.equal((await ask(metrics, '/status')).status, 200);
});

test('/metrics has the reading routes of /v1 beside it, and none that changes something', async (t) => {
  const { metrics } = await serve(t);
  const services = await ask(metrics, '/v1/services');
  assert.deepEqual([services.status, services.headers['content-type']], [200, 'application/x-ndjson']);
  assert.equal(services.body.trim().split('\n').length, [...new FakeView().services()].length);
  assert.equal((await ask(metrics, '/v1/connections')).status, 200);
  for (const path of ['/v1/drain?endpoint=10.244.0.1:8080', '/v1/log-level?verbosity=4']) {
    assert.deepEqual([(await ask(metrics, path, 'POST')).status, (await ask(metrics, path)).status], [404, 404], path);
  }
});

test('/metrics has profiles beside it with --profiling alone', async (t) => {
  const status = async (...flags: readonly string[]) => {
    const { metrics } = await serve(t, ...flags);
    return (await ask(metrics, '/debug/v8/cpu-profile?seconds=0')).status;
  };
  assert.deepEqual([await status(), await status('--profiling')], [404, 400]);
});

test('a port that is taken ends the program with --bind-address-hard-fail alone', async (t) => {
  const { healthz } = await serve(t);
  let calls = 0;
  const onUnbindable = () => {
    calls += 1;
  };
  start(t, [], healthz.port, onUnbindable);
  start(t, ['--bind-address-hard-fail'], healthz.port, onUnbindable);
  await until('a call of each of the last two', () => calls >= 2);
  assert.equal(calls, 2);
});
