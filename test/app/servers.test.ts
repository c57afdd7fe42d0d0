import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { serversOf } from '../../src/app/servers.ts';
import { Health } from '../../src/http/health.ts';
import type { HttpServer } from '../../src/http/http-server.ts';
import { type Address, parseAddress } from '../../src/model/address.ts';
import { ConnectionFeed } from '../../src/operate/connection-log/feed.ts';
import { FakeDataPlane } from '../fakes/fake-data-plane.ts';
import { FakeView } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { ask } from '../http/http-client.ts';
import { metricsOf } from '../http/metrics-of.ts';
import { parseCommandLine } from '../support/command-line.ts';
import { until } from '../support/until.ts';

/** The addresses of both, on loopback. */
async function serve(t: TestContext, ...flags: readonly string[]) {
  const line = parseCommandLine(['--manifests', '/etc/services', ...flags]);
  assert.ok(line.kind === 'run');
  const anyPort = { address: parseAddress('127.0.0.1') as Address, port: 0 };
  const servers = serversOf(
    { ...line.config, healthzAddress: anyPort, metricsAddress: anyPort, controlSocket: undefined },
    {
      log: new RecordingLog(),
      health: new Health(new ManualClock(), 60_000),
      metrics: metricsOf(() => []),
      apiStatus: () => undefined,
      view: new FakeView(),
      nodeEligible: () => true,
      onUnbindable: () => assert.fail('there is always a free port'),
      operations: { setVerbosity: () => {}, weightOf: () => undefined, setWeight: () => true, undrain: () => false },
      feed: new ConnectionFeed({ dataPlane: new FakeDataPlane(), log: new RecordingLog(), clock: new ManualClock() }),
      known: Promise.resolve(),
      configuration: undefined,
    },
  ) as HttpServer[];
  t.after(() => Promise.all(servers.map((server) => server.close())));
  for (const server of servers) server.start();
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

test('/metrics has profiles beside it with --profiling alone', async (t) => {
  const status = async (...flags: readonly string[]) => {
    const { metrics } = await serve(t, ...flags);
    return (await ask(metrics, '/debug/v8/cpu-profile?seconds=0')).status;
  };
  assert.deepEqual([await status(), await status('--profiling')], [404, 400]);
});
