import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ApiStatus } from '../../src/contracts/api-status.ts';
import { COUNTERS, type Counter, type Counters, type ServicePortStats } from '../../src/contracts/data-plane.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import { Health } from '../../src/telemetry/health.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { parseExposition } from './exposition.ts';

function setUp(ports: ServicePortStats[] = []) {
  const clock = new ManualClock(1_000_000);
  const health = new Health(clock, 60_000);
  let dropped = 0;
  const api: { status: ApiStatus | undefined } = { status: undefined };
  const metrics = new Metrics({
    clock,
    version: '1.2.3',
    health,
    stats: () => ports,
    droppedLogLines: () => dropped,
    apiStatus: () => api.status,
  });
  const scrape = async () => parseExposition(await metrics.render());
  const sampleOf = async (name: string) => {
    const samples = (await scrape()).get(name)?.samples ?? [];
    assert.equal(samples.length, 1, name);
    return samples[0]?.value;
  };
  return { clock, health, metrics, scrape, sampleOf, api, drop: () => dropped++ };
}

function port(name: ServicePortName, counters: Partial<Counters>, protocol: 'TCP' | 'UDP' = 'TCP'): ServicePortStats {
  const zero = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
  return { name, protocol, localPort: 30_000, counters: { ...zero, ...counters } };
}

test('the format is what it says it is, and valid', async () => {
  const { metrics, scrape } = setUp([port('default/web', {}), port('default/web:https', {})]);
  assert.equal(metrics.contentType, 'text/plain; version=0.0.4; charset=utf-8');
  const families = await scrape();
  for (const name of [
    'process_resident_memory_bytes',
    'process_cpu_seconds_total',
    'nodejs_eventloop_lag_p99_seconds',
  ]) {
    assert.ok(families.has(name), name);
  }
});

describe('syncing is told under kube-proxy’s names', () => {
  test('durations in its buckets', async () => {
    const { metrics, scrape } = setUp();
    metrics.syncDone(1);
    metrics.syncDone(3);
    metrics.syncDone(20_000);
    const samples = (await scrape()).get('kubeproxy_sync_proxy_rules_duration_seconds')?.samples ?? [];
    const buckets = samples.filter((sample) => sample.name.endsWith('_bucket'));
    assert.deepEqual(
      buckets.map((bucket) => [bucket.labels.get('le'), bucket.value]),
      [
        ['0.001', 1],
        ['0.002', 1],
        ...['0.004', '0.008', '0.016', '0.032', '0.064', '0.128', '0.256', '0.512'].map((le) => [le, 2]),
        ...['1.024', '2.048', '4.096', '8.192', '16.384'].map((le) => [le, 2]),
        ['+Inf', 3],
      ],
    );
    assert.equal(samples.find((sample) => sample.name.endsWith('_sum'))?.value, 20.004);
  });

  test('the times of the last successful sync and of the last change that asked for one', async () => {
    const { clock, health, metrics, sampleOf } = setUp();
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_last_timestamp_seconds'), 0);
    metrics.changesQueued();
    clock.advance(2_500);
    metrics.syncDone(2_500);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_last_timestamp_seconds'), 0, 'that sync had failed');
    health.updated();
    clock.advance(7_000);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_last_timestamp_seconds'), 1_002.5);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds'), 1_000);
  });

  test('changes and failures', async () => {
    const { metrics, sampleOf } = setUp();
    metrics.changed('service', 2);
    metrics.changed('endpoint', 5);
    metrics.changed('endpoint', 1);
    metrics.changed('service', 0);
    metrics.restoreFailed();
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_service_changes_total'), 2);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_endpoint_changes_total'), 6);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_iptables_restore_failures_total'), 1);
  });
});

test('build info names the versions', async () => {
  const { scrape } = setUp();
  const [sample] = (await scrape()).get('userspace_proxy_build_info')?.samples ?? [];
  assert.deepEqual(
    [Object.fromEntries(sample?.labels ?? []), sample?.value],
    [{ version: '1.2.3', nodejs_version: process.version }, 1],
  );
});

test('dropped log lines are counted', async () => {
  const { drop, sampleOf } = setUp();
  assert.equal(await sampleOf('userspace_proxy_log_lines_dropped_total'), 0);
  drop();
  drop();
  assert.equal(await sampleOf('userspace_proxy_log_lines_dropped_total'), 2);
  assert.equal(await sampleOf('userspace_proxy_log_lines_dropped_total'), 2);
});

describe('Service ports', () => {
  test('each counter becomes one series with its labels', async () => {
    const counters = Object.fromEntries(COUNTERS.map((counter, i) => [counter, i + 1])) as Counters;
    const of = (counter: Counter) => counters[counter];
    const { scrape } = setUp([port('kube-system/dns:udp', counters, 'UDP')]);
    const families = await scrape();
    const shown = [...families]
      .filter(([name]) => name.startsWith('userspace_proxy_') && !/build_info|log_lines|_api_/.test(name))
      .flatMap(([name, family]) =>
        family.samples.map(({ labels, value }) => {
          const { reason, ...rest } = Object.fromEntries(labels);
          assert.deepEqual(rest, { namespace: 'kube-system', service: 'dns', port: 'udp', protocol: 'UDP' });
          return [family.type, name.slice('userspace_proxy_'.length), reason, value];
        }),
      );
    assert.deepEqual(shown, [
      ['counter', 'connections_total', undefined, of('connections')],
      ['gauge', 'connections_active', undefined, of('active')],
      ['counter', 'received_bytes_total', undefined, of('receivedBytes')],
      ['counter', 'sent_bytes_total', undefined, of('sentBytes')],
      ['counter', 'connects_total', undefined, of('connects')],
      ['counter', 'connect_seconds_total', undefined, of('connectMs') / 1_000],
      ['counter', 'connect_retries_total', undefined, of('retries')],
      ['counter', 'connect_failures_total', 'refused', of('failedRefused')],
      ['counter', 'connect_failures_total', 'timeout', of('failedTimeout')],
      ['counter', 'connect_failures_total', 'unreachable', of('failedUnreachable')],
      ['counter', 'connect_failures_total', 'other', of('failedOther')],
      ['counter', 'turned_away_total', 'no-endpoints', of('noEndpoints')],
      ['counter', 'turned_away_total', 'exhausted', of('exhausted')],
      ['counter', 'limited_total', undefined, of('limited')],
      ['counter', 'accept_pauses_total', undefined, of('pauses')],
    ]);
  });

  test('an unnamed port has an empty label, and huge values stay numbers', async () => {
    const { scrape } = setUp([port('default/constructor', { receivedBytes: 2 ** 53, sentBytes: 1e21 })]);
    const families = await scrape();
    const [received] = families.get('userspace_proxy_received_bytes_total')?.samples ?? [];
    assert.equal(received?.labels.get('port'), '');
    assert.equal(received?.labels.get('service'), 'constructor');
    assert.equal(received?.value, 2 ** 53);
    assert.equal(families.get('userspace_proxy_sent_bytes_total')?.samples[0]?.value, 1e21);
  });

  test('come and go with the data plane’s', async () => {
    const ports = [port('default/a', {}), port('default/b', {})];
    const { scrape } = setUp(ports);
    const names = async () =>
      (await scrape()).get('userspace_proxy_connections_total')?.samples.map((sample) => sample.labels.get('service'));
    assert.deepEqual(await names(), ['a', 'b']);
    ports.shift();
    assert.deepEqual(await names(), ['b']);
    ports.length = 0;
    assert.deepEqual(await names(), []);
  });

  test('cannot break the format, whatever they are called', async () => {
    const name = 'n"s\\/we\n"b:po"rt} 1\n# EOF\\' as ServicePortName;
    const { scrape } = setUp([port(name, { connections: 7 })]);
    const [sample] = (await scrape()).get('userspace_proxy_connections_total')?.samples ?? [];
    assert.deepEqual(Object.fromEntries(sample?.labels ?? []), {
      namespace: 'n"s\\',
      service: 'we\n"b',
      port: 'po"rt} 1\n# EOF\\',
      protocol: 'TCP',
    });
    assert.equal(sample?.value, 7);
  });
});

test('counters that cannot be read make the scrape fail, not the process', async () => {
  const clock = new ManualClock();
  const stats = () => {
    throw new Error('worker gone');
  };
  const health = new Health(clock, 60_000);
  const metrics = new Metrics({
    clock,
    version: '1',
    health,
    stats,
    droppedLogLines: () => 0,
    apiStatus: () => undefined,
  });
  await assert.rejects(metrics.render(), /worker gone/);
});

test('two sets of metrics in one process do not meet', async () => {
  const first = setUp();
  const second = setUp();
  first.metrics.restoreFailed();
  assert.equal(await second.sampleOf('kubeproxy_sync_proxy_rules_iptables_restore_failures_total'), 0);
});

test('the reader that these tests rely on refuses what is not valid', () => {
  const head = '# HELP a x\n# TYPE a counter\n';
  const wrong = [
    `${head}a 1`,
    'a 1\n',
    '# TYPE a counter\na 1\n',
    `${head}b 1\n`,
    `${head}a 1\na 2\n`,
    `${head}a one\n`,
    `${head}a{x="1"y="2"} 1\n`,
    `${head}a{x="1",x="2"} 1\n`,
    `${head}a{x="\\q"} 1\n`,
    `${head}${head}a 1\n`,
    '# HELP h x\n# TYPE h histogram\nh_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
    '# HELP h x\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
  ];
  for (const text of wrong) assert.throws(() => parseExposition(text), text);
});

describe('the API server', () => {
  test('shows its requests under client-go’s names', async () => {
    const { metrics, scrape } = setUp();
    metrics.requestDone({ method: 'GET', host: '192.0.2.1:6443', code: '200', durationMs: 30 });
    metrics.requestDone({ method: 'GET', host: '192.0.2.1:6443', code: '<error>', durationMs: 2_000 });
    const families = await scrape();
    const requests = families.get('rest_client_requests_total')?.samples ?? [];
    assert.deepEqual(
      requests.map(({ labels, value }) => [Object.fromEntries(labels), value]),
      [
        [{ code: '200', method: 'GET', host: '192.0.2.1:6443' }, 1],
        [{ code: '<error>', method: 'GET', host: '192.0.2.1:6443' }, 1],
      ],
    );
    assert.ok(families.has('rest_client_request_duration_seconds'));
  });

  test('shows for how long it has been away', async () => {
    const { api, sampleOf } = setUp();
    assert.equal(await sampleOf('userspace_proxy_api_connected'), 1);
    api.status = { connected: false, lastContactAt: 0, listedAt: 0, staleForMs: 90_000 };
    assert.equal(await sampleOf('userspace_proxy_api_connected'), 0);
    assert.equal(await sampleOf('userspace_proxy_api_stale_seconds'), 90);
  });
});
