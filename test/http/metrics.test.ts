import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Health } from '../../src/http/health.ts';
import { Metrics } from '../../src/http/metrics.ts';
import { type Address, parseAddress } from '../../src/model/address.ts';
import { COUNTERS, type Counter, type Counters, type ListenerStats } from '../../src/model/data-plane.ts';
import type { LoopDelayMs } from '../../src/model/metrics.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import type { ApiStatus } from '../../src/model/source.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address, ENDPOINT, servicePort } from '../rules/fixtures.ts';
import { parseExposition } from './exposition.ts';
import { metricsOf } from './metrics-of.ts';

function setUp(ports: ListenerStats[] = [], { maxRows }: { maxRows?: number } = {}) {
  const clock = new ManualClock(1_000_000);
  const health = new Health(clock, 60_000);
  const log = { lines: { error: 0, warn: 0, info: 0 }, droppedLines: 0 };
  const pending = { services: 0 };
  const api: { status: ApiStatus | undefined } = { status: undefined };
  const loop: { delay: LoopDelayMs | undefined } = { delay: undefined };
  const metrics = new Metrics({
    clock,
    version: '1.2.3',
    health,
    families: ['IPv4', 'IPv6'],
    pendingServices: () => pending.services,
    stats: () => ports,
    log,
    apiStatus: () => api.status,
    takeLoopDelay: () => loop.delay,
    ...(maxRows !== undefined && { maxRows }),
  });
  const scrape = async () => parseExposition(await textOf(await metrics.render()));
  /** The value of the only series that has all these labels. */
  const sampleOf = async (name: string, labels: Readonly<Record<string, string>> = {}) => {
    const samples = ((await scrape()).get(name)?.samples ?? []).filter((sample) =>
      Object.entries(labels).every(([label, value]) => sample.labels.get(label) === value),
    );
    assert.equal(samples.length, 1, name);
    return samples[0]?.value;
  };
  const ipv4 = metrics.of('IPv4');
  return { clock, health: health.of('IPv4'), metrics, ipv4, scrape, sampleOf, api, pending, log, loop };
}

async function textOf(parts: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const part of parts) text += part;
  return text;
}

const IPV4 = { ip_family: 'IPv4' };

function port(name: ServicePortName, counters: Partial<Counters>, protocol: 'TCP' | 'UDP' = 'TCP'): ListenerStats {
  const zero = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
  return { id: name, name, family: 'IPv4', protocol, localPort: 30_000, counters: { ...zero, ...counters } };
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
    const { ipv4, scrape } = setUp();
    ipv4.syncDone({ kind: 'full', durationMs: 1 });
    ipv4.syncDone({ kind: 'partial', durationMs: 3 });
    ipv4.syncDone({ kind: 'partial', durationMs: 20_000 });
    const samples = ((await scrape()).get('kubeproxy_sync_proxy_rules_duration_seconds')?.samples ?? []).filter(
      (sample) => sample.labels.get('ip_family') === 'IPv4',
    );
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
    const count = async (kind: string) =>
      (await scrape())
        .get(`kubeproxy_sync_${kind}_proxy_rules_duration_seconds`)
        ?.samples.filter(({ name, labels }) => name.endsWith('_count') && labels.get('ip_family') === 'IPv4')
        .map(({ value }) => value);
    assert.deepEqual([await count('full'), await count('partial')], [[1], [2]]);
  });

  test('rules in each table, and failures to write what has changed', async () => {
    const { ipv4, sampleOf } = setUp();
    const rules = async (name: 'total' | 'last', table: string, ip_family = 'IPv4') =>
      sampleOf(`kubeproxy_sync_proxy_rules_iptables_${name}`, { ip_family, table });
    for (const table of ['nat', 'filter']) assert.equal(await rules('total', table, 'IPv6'), 0);
    ipv4.rulesInstalled('nat', { total: 42, written: 3 });
    assert.deepEqual([await rules('total', 'nat'), await rules('last', 'nat')], [42, 3]);
    assert.deepEqual([await rules('total', 'filter'), await rules('last', 'filter')], [0, 0]);
    const failures = 'kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total';
    assert.equal(await sampleOf(failures, IPV4), 0);
    ipv4.restoreFailed('partial');
    assert.equal(await sampleOf(failures, IPV4), 1);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_iptables_restore_failures_total', IPV4), 1);
  });

  test('the times of the last successful sync and of the last change that asked for one', async () => {
    const { clock, health, ipv4, sampleOf } = setUp();
    const last = () => sampleOf('kubeproxy_sync_proxy_rules_last_timestamp_seconds', IPV4);
    assert.equal(await last(), 0);
    ipv4.changesQueued();
    clock.advance(2_500);
    ipv4.syncDone({ kind: 'full', durationMs: 2_500 });
    assert.equal(await last(), 0, 'that sync had failed');
    health.updated();
    clock.advance(7_000);
    assert.equal(await last(), 1_002.5);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_last_timestamp_seconds', { ip_family: 'IPv6' }), 0);
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds', IPV4), 1_000);
  });

  test('changes, those that wait, and failures', async () => {
    const { ipv4, pending, sampleOf } = setUp();
    ipv4.changed('service', 2);
    ipv4.changed('endpoint', 5);
    ipv4.changed('endpoint', 1);
    ipv4.changed('service', 0);
    const changes = async () => [
      await sampleOf('kubeproxy_sync_proxy_rules_service_changes_total'),
      await sampleOf('kubeproxy_sync_proxy_rules_service_changes_pending'),
      await sampleOf('kubeproxy_sync_proxy_rules_endpoint_changes_total'),
      await sampleOf('kubeproxy_sync_proxy_rules_endpoint_changes_pending'),
    ];
    assert.deepEqual(await changes(), [2, 0, 6, 0]);
    pending.services = 3;
    assert.deepEqual(await changes(), [2, 3, 6, 3]);
    ipv4.restoreFailed('full');
    assert.equal(await sampleOf('kubeproxy_sync_proxy_rules_iptables_restore_failures_total', IPV4), 1);
  });

  test('network programming in its buckets', async () => {
    const { ipv4, scrape, sampleOf } = setUp();
    ipv4.networkProgrammed(400);
    ipv4.networkProgrammed(59_500);
    const name = 'kubeproxy_network_programming_duration_seconds';
    const samples = ((await scrape()).get(name)?.samples ?? []).filter(
      (sample) => sample.labels.get('ip_family') === 'IPv4',
    );
    const buckets = samples.filter((sample) => sample.name === `${name}_bucket`);
    const bounds = buckets.map((bucket) => bucket.labels.get('le'));
    assert.equal(bounds.length, 81);
    assert.deepEqual(
      [...bounds.slice(0, 4), ...bounds.slice(60, 64), ...bounds.slice(72, 75), ...bounds.slice(-2)],
      ['0.25', '0.5', '1', '2', '59', '60', '65', '70', '115', '120', '150', '300', '+Inf'],
    );
    assert.equal(samples.find((sample) => sample.name === `${name}_count`)?.value, 2);
    assert.equal(samples.find((sample) => sample.labels.get('le') === '0.5')?.value, 1);
    assert.equal(
      await sampleOf('kubeproxy_sync_proxy_rules_no_local_endpoints_total', { ...IPV4, traffic_policy: 'internal' }),
      0,
    );
  });

  describe('Services without local endpoints, by policy', () => {
    const of = (sampleOf: ReturnType<typeof setUp>['sampleOf']) => (traffic_policy: string) =>
      sampleOf('kubeproxy_sync_proxy_rules_no_local_endpoints_total', { ...IPV4, traffic_policy });
    const LACKING = { endpoints: [], onlyElsewhere: true } as const;
    const elsewhere = (internal: boolean, external: boolean) => ({ ...LACKING, internal, external });
    const ADDRESSES = [address('192.0.2.1')];
    const cases: readonly (readonly [parts: Partial<ServicePort>, internal: number, external: number])[] = [
      [{}, 0, 0],
      [{ endpoints: [] }, 0, 0],
      [{ nodePort: 30_000, local: elsewhere(false, true) }, 0, 1],
      [{ nodePort: 30_000, local: elsewhere(true, false) }, 1, 0],
      [{ nodePort: 30_000, local: { internal: false, external: true, endpoints: [ENDPOINT] } }, 0, 0],
      [LACKING, 1, 0],
      [{ ...LACKING, nodePort: 30_000 }, 1, 1],
      [{ ...LACKING, externalIPs: ADDRESSES }, 1, 1],
      [{ ...LACKING, loadBalancerIPs: ADDRESSES }, 1, 1],
    ];
    for (const [parts, internal, external] of cases) {
      test(`${JSON.stringify(parts)}: ${internal} and ${external}`, async () => {
        const { ipv4, sampleOf } = setUp();
        ipv4.stateChanged({ upserted: [servicePort(parts)], removed: [] });
        assert.deepEqual([await of(sampleOf)('internal'), await of(sampleOf)('external')], [internal, external]);
      });
    }

    test('count until they have endpoints here, or go', async () => {
      const { ipv4, sampleOf } = setUp();
      const a = servicePort({ ...LACKING, name: 'default/a' });
      const b = servicePort({ ...LACKING, name: 'default/b' });
      const deltas: readonly (readonly [upserted: ServicePort[], removed: ServicePortName[], count: number])[] = [
        [[a, b], [], 2],
        [[a], [], 2],
        [[servicePort({ name: 'default/a' })], [], 1],
        [[], ['default/b', 'default/unheard-of'], 0],
      ];
      for (const [upserted, removed, count] of deltas) {
        ipv4.stateChanged({ upserted, removed });
        assert.equal(await of(sampleOf)('internal'), count);
      }
    });
  });

  test('conntrack entries that went', async () => {
    const { ipv4, sampleOf, scrape } = setUp();
    ipv4.conntrackReconciled(5, 7);
    ipv4.conntrackReconciled(5, 0);
    assert.equal(await sampleOf('kubeproxy_conntrack_reconciler_deleted_entries_total', IPV4), 7);
    const samples = (await scrape()).get('kubeproxy_conntrack_reconciler_sync_duration_seconds')?.samples ?? [];
    const count = samples.find(({ name, labels }) => name.endsWith('_count') && labels.get('ip_family') === 'IPv4');
    assert.equal(count?.value, 2);
  });

  test('answers of /healthz and /livez, by code', async () => {
    const { metrics, sampleOf } = setUp();
    metrics.healthAnswered('healthz', 503);
    metrics.healthAnswered('livez', 200);
    metrics.healthAnswered('livez', 200);
    const of = (kind: string, code: string) => sampleOf(`kubeproxy_proxy_${kind}_total`, { code });
    assert.deepEqual([await of('healthz', '200'), await of('healthz', '503')], [0, 1]);
    assert.deepEqual([await of('livez', '200'), await of('livez', '503')], [2, 0]);
  });

  test('every series is there from the start: dashboards list their instances by them', async () => {
    const { scrape } = setUp();
    const families = [...(await scrape())].filter(([name]) => name.startsWith('kubeproxy_'));
    for (const [name, { samples }] of families) {
      const ipFamilies = new Set(samples.map((sample) => sample.labels.get('ip_family')));
      const expected = /_changes_|_healthz_|_livez_/.test(name) ? [undefined] : ['IPv4', 'IPv6'];
      assert.deepEqual([...ipFamilies], expected, name);
    }
    assert.equal(families.length, 19);
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

test('log lines are counted by level, and those that were dropped', async () => {
  const { log, sampleOf } = setUp();
  const lines = (level: string) => sampleOf('userspace_proxy_log_lines_total', { level });
  assert.equal(await lines('error'), 0);
  assert.equal(await sampleOf('userspace_proxy_log_lines_dropped_total'), 0);
  log.lines.error = 2;
  log.lines.info = 7;
  log.droppedLines = 1;
  // A second scrape does not add to the first.
  for (let scrapes = 0; scrapes < 2; scrapes++) {
    assert.deepEqual([await lines('error'), await lines('warn'), await lines('info')], [2, 0, 7]);
    assert.equal(await sampleOf('userspace_proxy_log_lines_dropped_total'), 1);
  }
});

test('the event loop’s lateness is that which was measured last, in seconds', async () => {
  const { loop, scrape } = setUp();
  const shown = async () => {
    const families = await scrape();
    const statistics = ['min', 'mean', 'stddev', 'p50', 'p90', 'p99', 'max'];
    return statistics.map((name) => families.get(`nodejs_eventloop_lag_${name}_seconds`)?.samples[0]?.value);
  };
  assert.deepEqual(await shown(), [0, 0, 0, 0, 0, 0, 0], 'nothing was measured yet');
  loop.delay = { min: 0, mean: 3, stddev: 2, p50: 1, p90: 40, p99: 500, max: 1_500 };
  const measured = [0, 0.003, 0.002, 0.001, 0.04, 0.5, 1.5];
  assert.deepEqual(await shown(), measured);
  loop.delay = undefined;
  assert.deepEqual(await shown(), measured, 'nothing was measured since');
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
      ['counter', 'resets_total', undefined, of('resets')],
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

  test('beyond the bound share the series of a Service without a name', async () => {
    const ports = ['a', 'b', 'c', 'd'].map((service) => port(`default/${service}`, { connections: 2, active: 1 }));
    const { scrape } = setUp(ports, { maxRows: 2 });
    const series = async (name: string) =>
      (await scrape()).get(name)?.samples.map(({ labels, value }) => [labels.get('service'), value]);
    assert.deepEqual(await series('userspace_proxy_connections_total'), [
      ['a', 2],
      ['b', 2],
      ['', 4],
    ]);
    assert.deepEqual((await series('userspace_proxy_connections_active'))?.at(-1), ['', 2]);
    ports.length = 2;
    assert.equal((await series('userspace_proxy_connections_total'))?.length, 2);
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

test('endpoints have the same series, as far as they are an endpoint’s, on a page of their own', async () => {
  const counters = Object.fromEntries(COUNTERS.map((counter, i) => [counter, i + 1])) as Counters;
  const addresses = ['10.0.0.1', 'fd00::1'].map((text) => parseAddress(text) as Address);
  const endpoints = addresses.map((address) => ({ endpoint: { address, port: 8080 }, counters }));
  const { metrics, scrape } = setUp([{ ...port('default/web:http', {}), endpoints }, port('default/uncounted', {})]);
  const families = parseExposition(await textOf(await metrics.renderEndpoints()));
  assert.deepEqual(
    [...families].map(([name, { samples }]) => [name, samples.length]),
    [
      ['userspace_proxy_endpoint_connections_total', 2],
      ['userspace_proxy_endpoint_connections_active', 2],
      ['userspace_proxy_endpoint_received_bytes_total', 2],
      ['userspace_proxy_endpoint_sent_bytes_total', 2],
      ['userspace_proxy_endpoint_connects_total', 2],
      ['userspace_proxy_endpoint_connect_seconds_total', 2],
      ['userspace_proxy_endpoint_connect_retries_total', 2],
      ['userspace_proxy_endpoint_connect_failures_total', 8],
      ['userspace_proxy_endpoint_resets_total', 2],
    ],
  );
  const samples = families.get('userspace_proxy_endpoint_received_bytes_total')?.samples ?? [];
  assert.deepEqual(
    samples.map(({ labels, value }) => [Object.fromEntries(labels), value]),
    ['10.0.0.1:8080', '[fd00::1]:8080'].map((endpoint) => [
      { namespace: 'default', service: 'web', port: 'http', protocol: 'TCP', endpoint },
      counters.receivedBytes,
    ]),
  );
  assert.ok(![...(await scrape()).keys()].some((name) => name.includes('_endpoint_conn')));
});

test('endpoints beyond the bound share one series', async () => {
  const counters = Object.fromEntries(COUNTERS.map((counter) => [counter, 1])) as Counters;
  const endpoints = [1, 2, 3].map((n) => ({
    endpoint: { address: parseAddress(`10.0.0.${n}`) as Address, port: 80 },
    counters,
  }));
  const { metrics } = setUp([{ ...port('default/web', {}), endpoints }], { maxRows: 1 });
  const families = parseExposition(await textOf(await metrics.renderEndpoints()));
  const samples = families.get('userspace_proxy_endpoint_connections_total')?.samples ?? [];
  assert.deepEqual(
    samples.map(({ labels, value }) => [labels.get('endpoint'), value]),
    [
      ['10.0.0.1:80', 1],
      ['', 2],
    ],
  );
});

test('counters that cannot be read make the scrape fail, not the process', async () => {
  const stats = () => {
    throw new Error('worker gone');
  };
  const metrics = metricsOf(stats);
  await assert.rejects(metrics.render(), /worker gone/);
  await assert.rejects(metrics.renderEndpoints(), /worker gone/);
});

test('two sets of metrics in one process do not meet', async () => {
  const first = setUp();
  const second = setUp();
  first.ipv4.restoreFailed('full');
  assert.equal(await second.sampleOf('kubeproxy_sync_proxy_rules_iptables_restore_failures_total', IPV4), 0);
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
