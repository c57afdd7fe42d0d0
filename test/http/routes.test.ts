import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { Health } from '../../src/http/health.ts';
import { healthzRoutes, metricsRoutes } from '../../src/http/routes.ts';
import { COUNTERS, type Counters, type ListenerStats } from '../../src/model/data-plane.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ApiStatus } from '../../src/model/source.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { until } from '../support/until.ts';
import { parseExposition } from './exposition.ts';
import { ask } from './http-client.ts';
import { metricsOf } from './metrics-of.ts';
import { serve } from './serve.ts';

async function serveHealth(t: TestContext, { eligible = true, api }: { eligible?: boolean; api?: ApiStatus } = {}) {
  const clock = new ManualClock(Date.UTC(2026, 10, 20, 5, 23, 36, 843));
  const health = new Health(clock, 60_000);
  const sync = health.of('IPv4');
  const answered: string[] = [];
  const { address } = await serve(
    t,
    healthzRoutes({
      health,
      nodeEligible: () => eligible,
      apiStatus: () => api,
      metrics: { healthAnswered: (kind, code) => answered.push(`${kind} ${code}`) },
    }),
  );
  return { address, clock, sync, answered };
}

describe('the healthz address', () => {
  test('answers as upstream: 200 and the current time while healthy', async (t) => {
    const { address, clock, sync, answered } = await serveHealth(t);
    sync.syncBegins();
    sync.updated();
    clock.advance(1_000);
    const now = '2026-11-20 05:23:37.843 +0000 UTC m=+1.000000000';
    const healthz = await ask(address, '/healthz');
    assert.equal(healthz.body, `{"lastUpdated": "${now}","currentTime": "${now}", "nodeEligible": true}`);
    const livez = await ask(address, '/livez');
    assert.equal(livez.body, `{"lastUpdated": "${now}","currentTime": "${now}"}`);
    for (const { status, headers } of [healthz, livez]) {
      assert.equal(status, 200);
      assert.equal(headers['content-type'], 'application/json');
      assert.equal(headers['x-content-type-options'], 'nosniff');
    }
    assert.deepEqual(answered, ['healthz 200', 'livez 200']);
  });

  test('answers 503 and the time of the last sync when syncs fail for too long', async (t) => {
    const { address, clock, sync, answered } = await serveHealth(t);
    sync.queuedUpdate();
    clock.advance(60_000);
    const never =
      '"lastUpdated": "0001-01-01 00:00:00 +0000 UTC","currentTime": "2026-11-20 05:24:36.843 +0000 UTC m=+60.000000000"';
    for (const [path, rest] of [
      ['/healthz', ', "nodeEligible": true'],
      ['/livez', ''],
    ] as const) {
      const { status, body } = await ask(address, path);
      assert.deepEqual([status, body], [503, `{${never}${rest}}`]);
    }
    sync.syncBegins();
    sync.updated();
    assert.equal((await ask(address, '/healthz')).status, 200);
    sync.queuedUpdate();
    clock.advance(61_000);
    const { status, body } = await ask(address, '/healthz');
    assert.equal(status, 503);
    assert.equal(JSON.parse(body).lastUpdated, '2026-11-20 05:24:36.843 +0000 UTC m=+60.000000000');
    assert.deepEqual(answered, ['healthz 503', 'livez 503', 'healthz 200', 'healthz 503']);
  });

  test('takes a node that is to be deleted out of load balancers, without a restart of the proxy', async (t) => {
    const { address, sync } = await serveHealth(t, { eligible: false });
    sync.syncBegins();
    sync.updated();
    const healthz = await ask(address, '/healthz');
    const start = '2026-11-20 05:23:36.843 +0000 UTC m=+0.000000000';
    assert.equal(healthz.body, `{"lastUpdated": "${start}","currentTime": "${start}", "nodeEligible": false}`);
    assert.equal(healthz.status, 503);
    assert.equal((await ask(address, '/livez')).status, 200);
  });

  test('shows how old the state of an API server is, and stays healthy', async (t) => {
    const api = { connected: false, lastContactAt: 0, listedAt: 0, staleForMs: 90_400, servers: [] };
    const { address } = await serveHealth(t, { api });
    const { status, body } = await ask(address, '/healthz');
    assert.equal(status, 200);
    assert.deepEqual(JSON.parse(body).apiServer, { connected: false, staleForSeconds: 90 });
    assert.match(body, /, "nodeEligible": true,"apiServer": \{/);
  });

  test('says of when the state on disk is that it serves', async (t) => {
    const contact = { lastContactAt: undefined, listedAt: undefined };
    const api = { connected: false, ...contact, staleForMs: 0, servers: [], servedStateOf: 0 };
    const { address } = await serveHealth(t, { api });
    const { status, body } = await ask(address, '/healthz');
    assert.deepEqual(
      [status, JSON.parse(body).apiServer.state],
      [200, 'serving the state of 1970-01-01T00:00:00.000Z'],
    );
  });

  test('has nothing else', async (t) => {
    const { address } = await serveHealth(t);
    for (const path of ['/metrics', '/proxyMode', '/configz', '/debug/pprof/', '/']) {
      assert.equal((await ask(address, path)).status, 404, path);
    }
  });
});

describe('the metrics address', () => {
  const zero = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
  const name: ServicePortName = 'default/web';
  const web: ListenerStats = { id: name, name, family: 'IPv4', protocol: 'TCP', localPort: 1, counters: zero };

  async function serveMetrics(t: TestContext, stats: () => Iterable<ListenerStats> = () => []) {
    const effectiveConfiguration = () => ({ BindAddress: '0.0.0.0', IPTables: { SyncPeriod: '30s' } });
    const { address } = await serve(t, new Map(metricsRoutes(metricsOf(stats), effectiveConfiguration)));
    return address;
  }

  test('answers as upstream, without a newline; profiles need --profiling', async (t) => {
    const address = await serveMetrics(t);
    const text = 'text/plain; charset=utf-8';
    const configuration = '{"BindAddress":"0.0.0.0","IPTables":{"SyncPeriod":"30s"}}';
    for (const [path, ...expected] of [
      ['/healthz', 200, 'ok', text],
      ['/proxyMode', 200, 'userspace', text],
      ['/configz', 200, `{"kubeproxy.config.k8s.io":${configuration}}`, 'application/json'],
      ...['/debug/v8/cpu-profile', '/debug/pprof/', '/livez', '/', '/metrics/'].map(
        (other) => [other, 404, '404 page not found\n', text] as const,
      ),
    ] as const) {
      const { status, headers, body } = await ask(address, path);
      assert.deepEqual([status, body, headers['content-type']], expected, path);
    }
  });

  test('with --config, /configz says whether what the file says is in force', async (t) => {
    const file = { path: '/etc/proxy.conf', isInForce: true };
    const { address } = await serve(
      t,
      new Map(
        metricsRoutes(
          metricsOf(() => []),
          () => ({}),
          file,
        ),
      ),
    );
    for (const inForce of [true, false]) {
      file.isInForce = inForce;
      const { body } = await ask(address, '/configz');
      const own = { configFile: '/etc/proxy.conf', inForce };
      assert.deepEqual(JSON.parse(body), { 'kubeproxy.config.k8s.io': {}, 'kube-userspace-proxy': own });
    }
  });

  test('gives the metrics in Prometheus’ format, and the series of endpoints on a path of their own', async (t) => {
    const endpoint = { address: '10.0.0.1', port: 80 } as NonNullable<ListenerStats['endpoints']>[0]['endpoint'];
    const address = await serveMetrics(t, () => [{ ...web, endpoints: [{ endpoint, counters: zero }] }]);
    for (const [path, family] of [
      ['/metrics', 'userspace_proxy_connections_total'],
      ['/metrics/endpoints', 'userspace_proxy_endpoint_connections_total'],
    ] as const) {
      const { status, headers, body } = await ask(address, path);
      assert.deepEqual([status, headers['content-type']], [200, 'text/plain; version=0.0.4; charset=utf-8']);
      const families = parseExposition(body);
      assert.equal(families.get(family)?.samples[0]?.labels.get('service'), 'web');
      assert.equal(families.has('kubeproxy_sync_proxy_rules_duration_seconds'), path === '/metrics');
    }
  });

  test('answers no more than four scrapes at a time', { timeout: 60_000 }, async (t) => {
    let isOver = false;
    let underWay = 0;
    const address = await serveMetrics(t, function* () {
      underWay += 1;
      while (!isOver) yield web;
    });
    t.after(() => {
      isOver = true;
    });
    const slow = Array.from({ length: 4 }, () => ask(address, '/metrics'));
    await until('all of them are under way', () => underWay === 4);
    const { status, body } = await ask(address, '/metrics');
    assert.deepEqual([status, body], [503, '4 others are being answered; try again.\n']);
    isOver = true;
    for (const answer of slow) assert.equal((await answer).status, 200);
    // The server may learn later than the client that all was sent.
    while ((await ask(address, '/metrics')).status !== 200);
  });

  test('answers a scrape that fails with 500 and goes on', async (t) => {
    let broken = true;
    const address = await serveMetrics(t, () => (broken ? assert.fail('worker gone') : []));
    for (const path of ['/metrics', '/metrics/endpoints']) assert.equal((await ask(address, path)).status, 500, path);
    broken = false;
    assert.equal((await ask(address, '/metrics')).status, 200);
  });
});
