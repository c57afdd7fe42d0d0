import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ApiRequests } from '../../src/http/api-requests.ts';
import { Health } from '../../src/http/health.ts';
import { Metrics } from '../../src/http/metrics.ts';
import { COUNTERS, type Counter, type Counters, type ListenerStats } from '../../src/model/data-plane.ts';
import { namedEndpoint } from '../../src/model/endpoint.ts';
import type { LoopDelayMs } from '../../src/model/metrics.ts';
import type { ServicePortName } from '../../src/model/service.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import type { ApiStatus } from '../../src/model/source.ts';
import { FAKE_NOW, SEVERAL_SERVERS } from '../fakes/fake-view.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address, ENDPOINT, servicePort } from '../support/model.ts';
import { parseExposition } from './exposition.ts';

function setUp(ports: ListenerStats[] = [], { maxRows }: { maxRows?: number } = {}) {
  const clock = new ManualClock(1_000_000);
  const health = new Health(clock, 60_000);
  const log = { lines: { error: 0, warn: 0, info: 0 }, droppedLines: 0 };
  const pending = { services: 0 };
  const api: { status: ApiStatus | undefined } = { status: undefined };
  const config = { isInForce: true };
  const loop: { delay: LoopDelayMs | undefined } = { delay: undefined };
  const wakeCalls = new Map<ServicePortName | undefined, number>();
  const apiRequests = new ApiRequests();
  const metrics = new Metrics({
    registry: apiRequests.registry,
    ...{ clock, health, log, version: '1.2.3', families: ['IPv4', 'IPv6'], tables: ['nat', 'filter'] },
    pendingServices: () => pending.services,
    connectionLog: () => ({ entries: 7, dropped: { engine: 0, file: 2, tail: 3 } }),
    stats: () => ports,
    wakeCalls: () => wakeCalls,
    apiStatus: () => api.status,
    configInForce: () => config.isInForce,
    takeLoopDelay: () => loop.delay,
    ...(maxRows !== undefined && { maxRows }),
  });
  const scrape = async () => parseExposition(await textOf(await metrics.render()));
  /** The samples that have at least these labels. */
  const samplesOf = async (name: string, labels: Readonly<Record<string, string>> = {}) =>
    ((await scrape()).get(name)?.samples ?? []).filter((sample) =>
      Object.entries(labels).every(([label, value]) => sample.labels.get(label) === value),
    );
  /** The value of the only such sample. */
  const sampleOf = async (name: string, labels: Readonly<Record<string, string>> = {}) => {
    const samples = await samplesOf(name, labels);
    assert.equal(samples.length, 1, name);
    return samples[0]?.value;
  };
  const ipv4 = metrics.of('IPv4');
  return {
    clock,
    health: health.of('IPv4'),
    metrics,
    apiRequests,
    ipv4,
    scrape,
    samplesOf,
    sampleOf,
    api,
    config,
    pending,
    log,
    loop,
    wakeCalls,
  };
}

async function textOf(parts: AsyncIterable<string>): Promise<string> {
  let text = '';
  for await (const part of parts) text += part;
  return text;
}

const IPV4 = { ip_family: 'IPv4' };
const ZERO = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;
/** A different value for each counter. */
const COUNTED = Object.fromEntries(COUNTERS.map((counter, i) => [counter, i + 1])) as Counters;

function port(name: ServicePortName, counters: Partial<Counters> = {}): ListenerStats {
  return { id: name, name, family: 'IPv4', protocol: 'TCP', localPort: 30_000, counters: { ...ZERO, ...counters } };
}

test('the format is valid, with its content type', async () => {
  const { metrics, scrape } = setUp([port('default/web'), port('default/web:https')]);
  assert.equal(metrics.contentType, 'text/plain; version=0.0.4; charset=utf-8');
  const families = await scrape();
  for (const name of ['process_resident_memory_bytes', 'process_cpu_seconds_total', 'process_open_fds']) {
    assert.ok(families.has(name), name);
  }
});

describe('under kube-proxy’s names', () => {
  const SYNC = 'kubeproxy_sync_proxy_rules';

  test('sync durations, in its buckets', async () => {
    const { ipv4, samplesOf } = setUp();
    ipv4.syncDone({ kind: 'full', durationMs: 1 });
    ipv4.syncDone({ kind: 'partial', durationMs: 3 });
    ipv4.syncDone({ kind: 'partial', durationMs: 20_000, err: 'no iptables' });
    const samples = await samplesOf(`${SYNC}_duration_seconds`, IPV4);
    assert.deepEqual(
      samples.filter(({ name }) => name.endsWith('_bucket')).map(({ labels, value }) => [labels.get('le'), value]),
      [
        ['0.001', 1],
        ['0.002', 1],
        ...['0.004', '0.008', '0.016', '0.032', '0.064', '0.128', '0.256', '0.512'].map((le) => [le, 2]),
        ...['1.024', '2.048', '4.096', '8.192', '16.384'].map((le) => [le, 2]),
        ['+Inf', 3],
      ],
    );
    assert.equal(samples.find((sample) => sample.name.endsWith('_sum'))?.value, 20.004);
    for (const [kind, count] of Object.entries({ full: 1, partial: 2 })) {
      const of = await samplesOf(`kubeproxy_sync_${kind}_proxy_rules_duration_seconds`, IPV4);
      assert.equal(of.find(({ name }) => name.endsWith('_count'))?.value, count);
    }
    assert.deepEqual(ipv4.lastSync(), { at: 1_000_000, durationMs: 20_000, err: 'no iptables' });
  });

  test('rules in each table, and failures to write what has changed', async () => {
    const { ipv4, sampleOf } = setUp();
    ipv4.rulesInstalled('nat', { total: 42, written: 3, leftOut: 2 });
    for (const [name, family, table, rules] of [
      ['total', 'IPv4', 'nat', 42],
      ['last', 'IPv4', 'nat', 3],
      ['total', 'IPv4', 'filter', 0],
      ['total', 'IPv6', 'nat', 0],
    ] as const) {
      assert.equal(await sampleOf(`${SYNC}_iptables_${name}`, { ip_family: family, table }), rules);
    }
    ipv4.restoreFailed('partial');
    ipv4.restoreFailed('full');
    assert.equal(await sampleOf(`${SYNC}_iptables_partial_restore_failures_total`, IPV4), 1);
    assert.equal(await sampleOf(`${SYNC}_iptables_restore_failures_total`, IPV4), 2);
  });

  test('the times of the last successful sync and of the last change', async () => {
    const { clock, health, ipv4, sampleOf } = setUp();
    const last = () => sampleOf(`${SYNC}_last_timestamp_seconds`, IPV4);
    ipv4.changesQueued();
    clock.advance(2_500);
    ipv4.syncDone({ kind: 'full', durationMs: 2_500 });
    assert.equal(await last(), 0, 'that sync had failed');
    health.updated();
    clock.advance(7_000);
    assert.equal(await last(), 1_002.5);
    assert.equal(await sampleOf(`${SYNC}_last_timestamp_seconds`, { ip_family: 'IPv6' }), 0);
    assert.equal(await sampleOf(`${SYNC}_last_queued_timestamp_seconds`, IPV4), 1_000);
  });

  test('changes, pending changes, conntrack entries and health answers', async () => {
    const { ipv4, metrics, pending, sampleOf } = setUp();
    ipv4.changed('service', 2);
    ipv4.changed('endpoint', 5);
    ipv4.changed('endpoint', 1);
    pending.services = 3;
    ipv4.conntrackReconciled(5, 7);
    metrics.healthAnswered('healthz', 503);
    for (const [name, labels, value] of [
      [`${SYNC}_service_changes_total`, {}, 2],
      [`${SYNC}_endpoint_changes_total`, {}, 6],
      [`${SYNC}_service_changes_pending`, {}, 3],
      [`${SYNC}_endpoint_changes_pending`, {}, 3],
      ['kubeproxy_conntrack_reconciler_deleted_entries_total', IPV4, 7],
      ['kubeproxy_proxy_healthz_total', { code: '503' }, 1],
      ['kubeproxy_proxy_healthz_total', { code: '200' }, 0],
      ['kubeproxy_proxy_livez_total', { code: '503' }, 0],
    ] as const) {
      assert.equal(await sampleOf(name, labels), value, name);
    }
  });

  test('network programming, in its buckets', async () => {
    const { ipv4, samplesOf } = setUp();
    ipv4.networkProgrammed(400);
    ipv4.networkProgrammed(59_500);
    const name = 'kubeproxy_network_programming_duration_seconds';
    const samples = await samplesOf(name, IPV4);
    const bounds = samples.filter((sample) => sample.name === `${name}_bucket`).map(({ labels }) => labels.get('le'));
    assert.equal(bounds.length, 81);
    assert.deepEqual(
      [...bounds.slice(0, 4), ...bounds.slice(60, 64), ...bounds.slice(72, 75), ...bounds.slice(-2)],
      ['0.25', '0.5', '1', '2', '59', '60', '65', '70', '115', '120', '150', '300', '+Inf'],
    );
    assert.equal(samples.find((sample) => sample.name === `${name}_count`)?.value, 2);
    assert.equal(samples.find((sample) => sample.labels.get('le') === '0.5')?.value, 1);
  });

  describe('Services without local endpoints, by policy', () => {
    const counts = async ({ sampleOf }: ReturnType<typeof setUp>) => {
      const of = (traffic_policy: string) => sampleOf(`${SYNC}_no_local_endpoints_total`, { ...IPV4, traffic_policy });
      return [await of('internal'), await of('external')];
    };
    const NONE_LEFT_OUT = { unserved: [], refused: [] };
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
        const parties = setUp();
        parties.ipv4.stateChanged({ upserted: [servicePort(parts)], removed: [], ...NONE_LEFT_OUT });
        assert.deepEqual(await counts(parties), [internal, external]);
      });
    }

    test('count until they have endpoints here, or go', async () => {
      const parties = setUp();
      const a = servicePort({ ...LACKING, name: 'default/a' });
      const b = servicePort({ ...LACKING, name: 'default/b' });
      const deltas: readonly (readonly [upserted: ServicePort[], removed: ServicePortName[], count: number])[] = [
        [[a, b], [], 2],
        [[a], [], 2],
        [[servicePort({ name: 'default/a' })], [], 1],
        [[], ['default/b', 'default/unheard-of'], 0],
      ];
      for (const [upserted, removed, count] of deltas) {
        parties.ipv4.stateChanged({ upserted, removed, ...NONE_LEFT_OUT });
        assert.deepEqual(await counts(parties), [count, 0]);
      }
    });
  });

  test('rules and parts of Services that are left out', async () => {
    const { ipv4, samplesOf } = setUp();
    ipv4.rulesInstalled('nat', { total: 42, written: 3, leftOut: 2 });
    const [rules] = await samplesOf('userspace_proxy_rules_left_out', { ip_family: 'IPv4', table: 'nat' });
    assert.equal(rules?.value, 2);
    const part = { name: 'shop/web', what: 'endpoint', found: 'loop' } as const;
    ipv4.stateChanged({ upserted: [], removed: [], refused: [part], unserved: [{ name: 'shop/web', found: 'SCTP' }] });
    const [parts] = await samplesOf('userspace_proxy_service_parts_left_out_total', { ip_family: 'IPv4' });
    assert.equal(parts?.value, 2);
  });

  test('every series exists from the start, as dashboards list instances by them', async () => {
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

test('the process: versions, log lines, the API server, the configuration file', async () => {
  const { log, api, config, sampleOf } = setUp();
  assert.equal(await sampleOf('userspace_proxy_api_connected'), 1);
  assert.equal(await sampleOf('userspace_proxy_config_in_force'), 1);
  config.isInForce = false;
  log.lines.error = 2;
  log.lines.info = 7;
  log.droppedLines = 1;
  api.status = {
    connected: false,
    lastContactAt: 0,
    listedAt: 0,
    staleForMs: 90_000,
    servers: SEVERAL_SERVERS,
    servedStateOf: 400_000,
  };
  // A second scrape does not add to the first.
  for (let scrapes = 0; scrapes < 2; scrapes++) {
    for (const [name, labels, value] of [
      ['build_info', { version: '1.2.3', nodejs_version: process.version }, 1],
      ['log_lines_total', { level: 'error' }, 2],
      ['log_lines_total', { level: 'warn' }, 0],
      ['log_lines_total', { level: 'info' }, 7],
      ['log_lines_dropped_total', {}, 1],
      ['connection_log_entries_total', {}, 7],
      ['connection_log_dropped_total', { at: 'file' }, 2],
      ['connection_log_dropped_total', { at: 'tail' }, 3],
      ['api_connected', {}, 0],
      ['api_stale_seconds', {}, 90],
      ['api_server_used', { server: '192.0.2.1:6443' }, 0],
      ['api_server_used', { server: '192.0.2.2:6443' }, 1],
      // Only of that one.
      ['api_server_used_since_timestamp_seconds', {}, (FAKE_NOW - 60_000) / 1_000],
      ['api_server_usable', { server: '192.0.2.1:6443' }, 0],
      ['api_server_usable', { server: '192.0.2.3:6443' }, 1],
      ['state_age_seconds', {}, 600],
      ['config_in_force', {}, 0],
    ] as const) {
      assert.equal(await sampleOf(`userspace_proxy_${name}`, labels), value, name);
    }
  }
});

test('requests to the API server have client-go’s names', async () => {
  const { apiRequests, samplesOf } = setUp();
  for (const code of ['200', '<error>']) {
    apiRequests.requestDone({ method: 'GET', host: '192.0.2.1:6443', code, durationMs: 30 });
  }
  const labels = (await samplesOf('rest_client_requests_total')).map((sample) => Object.fromEntries(sample.labels));
  const expected = { method: 'GET', host: '192.0.2.1:6443' };
  assert.deepEqual(labels, [
    { code: '200', ...expected },
    { code: '<error>', ...expected },
  ]);
  assert.ok((await samplesOf('rest_client_request_duration_seconds', { verb: 'GET' })).length > 0);
});

test('the event loop’s lateness is the last measurement, in seconds', async () => {
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
  const FAMILIES: readonly (readonly [name: string, counter: Counter, reason?: string])[] = [
    ['connections_total', 'connections'],
    ['connections_active', 'active'],
    ['received_bytes_total', 'receivedBytes'],
    ['sent_bytes_total', 'sentBytes'],
    ['connects_total', 'connects'],
    ['connect_seconds_total', 'connectMs'],
    ['connect_retries_total', 'retries'],
    ['connect_failures_total', 'failedRefused', 'refused'],
    ['connect_failures_total', 'failedTimeout', 'timeout'],
    ['connect_failures_total', 'failedUnreachable', 'unreachable'],
    ['connect_failures_total', 'failedOther', 'other'],
    ['resets_total', 'resets'],
    ['hedges_total', 'hedges'],
    ['ejections_total', 'ejections'],
    ['ejected', 'ejected'],
  ];
  const REFUSALS: typeof FAMILIES = [
    ['turned_away_total', 'noEndpoints', 'no-endpoints'],
    ['turned_away_total', 'exhausted', 'exhausted'],
    ['turned_away_total', 'waitTimeouts', 'wait-timeout'],
    ['turned_away_total', 'waitRefused', 'wait-full'],
    ['limited_total', 'limited'],
    ['udp_not_kept_total', 'notKept'],
    ['affinity_forgotten_total', 'affinityForgotten'],
    ['accept_pauses_total', 'pauses'],
    ['clients_waiting', 'waiting'],
  ];
  const LABELS = { namespace: 'kube-system', service: 'dns', port: 'udp', protocol: 'TCP' };

  /** All of them must have these labels, and there must be no others. */
  function check(text: string, expected: typeof FAMILIES, labels: Readonly<Record<string, string>>, prefix: string) {
    const shown = [...parseExposition(text)]
      .filter(
        ([name]) =>
          name.startsWith(prefix) &&
          !/build_info|log_lines|connection_log|_api_|_state_|config_|left_out|wait_seconds|wake_calls/.test(name),
      )
      .flatMap(([name, { samples }]) =>
        samples.map((sample) => [name.slice(prefix.length), Object.fromEntries(sample.labels), sample.value]),
      );
    assert.deepEqual(
      shown,
      expected.map(([name, counter, reason]) => [
        name,
        { ...labels, ...(reason !== undefined && { reason }) },
        counter === 'connectMs' ? COUNTED[counter] / 1_000 : COUNTED[counter],
      ]),
    );
  }

  test('have one series for each counter, and their endpoints the same on a page of their own', async () => {
    const endpoint = namedEndpoint(address('fd00::1'), 8080);
    const { metrics } = setUp([
      { ...port('kube-system/dns:udp', COUNTED), endpoints: [{ endpoint, counters: COUNTED }] },
    ]);
    check(await textOf(await metrics.render()), [...FAMILIES, ...REFUSALS], LABELS, 'userspace_proxy_');
    const ofEndpoint = { ...LABELS, endpoint: '[fd00::1]:8080' };
    check(await textOf(await metrics.renderEndpoints()), FAMILIES, ofEndpoint, 'userspace_proxy_endpoint_');
  });

  test('have a histogram of the time that clients waited, where some have', async () => {
    const waited = { waits100ms: 1, waits1000ms: 2, waits30000ms: 3, waits120000ms: 4, waitMs: 543_210 };
    const { samplesOf } = setUp([port('default/quiet'), port('default/web', waited)]);
    const samples = await samplesOf('userspace_proxy_wait_seconds');
    assert.deepEqual([...new Set(samples.map(({ labels }) => labels.get('service')))], ['web']);
    assert.deepEqual(
      samples.map(({ name, labels, value }) => [labels.get('le') ?? name.split('_').at(-1), value]),
      [
        ['0.1', 1],
        ['1', 3],
        ['5', 3],
        ['30', 6],
        ['+Inf', 10],
        ['sum', 543.21],
        ['count', 10],
      ],
    );
  });

  test('count calls for pods, by Service port and in one series for the rest', async () => {
    const { samplesOf, wakeCalls } = setUp();
    assert.deepEqual(await samplesOf('userspace_proxy_wake_calls_total'), []);
    wakeCalls.set('shop/web:http', 3).set(undefined, 2);
    const samples = await samplesOf('userspace_proxy_wake_calls_total');
    assert.deepEqual(
      samples.map(({ labels, value }) => [Object.fromEntries(labels), value]),
      [
        [{ namespace: 'shop', service: 'web', port: 'http' }, 3],
        [{ namespace: '', service: '', port: '' }, 2],
      ],
    );
  });

  test('without a port name have an empty label, and huge values stay numbers', async () => {
    const { samplesOf } = setUp([port('default/constructor', { receivedBytes: 2 ** 53, sentBytes: 1e21 })]);
    const [received] = await samplesOf('userspace_proxy_received_bytes_total', { service: 'constructor', port: '' });
    assert.equal(received?.value, 2 ** 53);
    assert.equal((await samplesOf('userspace_proxy_sent_bytes_total'))[0]?.value, 1e21);
  });

  test('come and go with those of the data plane', async () => {
    const ports = [port('default/a'), port('default/b')];
    const { samplesOf } = setUp(ports);
    assert.equal((await samplesOf('userspace_proxy_connections_total')).length, 2);
    ports.shift();
    const names = (await samplesOf('userspace_proxy_connections_total')).map(({ labels }) => labels.get('service'));
    assert.deepEqual(names, ['b']);
  });

  test('and endpoints beyond the bound share the series of a Service without a name', async () => {
    const endpoints = [1, 2, 3].map((n) => ({
      endpoint: namedEndpoint(address(`10.0.0.${n}`), 80),
      counters: COUNTED,
    }));
    const ports = ['a', 'b', 'c', 'd'].map((service) => port(`default/${service}`, { connections: 2, active: 1 }));
    const { metrics, samplesOf } = setUp([{ ...(ports[0] as ListenerStats), endpoints }, ...ports.slice(1)], {
      maxRows: 2,
    });
    const series = async (name: string) =>
      (await samplesOf(name)).map(({ labels, value }) => [labels.get('service'), value]);
    assert.deepEqual(await series('userspace_proxy_connections_total'), [
      ['a', 2],
      ['b', 2],
      ['', 4],
    ]);
    const families = parseExposition(await textOf(await metrics.renderEndpoints()));
    const samples = families.get('userspace_proxy_endpoint_connections_total')?.samples ?? [];
    assert.deepEqual(
      samples.map(({ labels }) => labels.get('endpoint')),
      ['10.0.0.1:80', '10.0.0.2:80', ''],
    );
  });

  test('cannot break the format with strange names', async () => {
    const name = 'n"s\\/we\n"b:po"rt} 1\n# EOF\\' as ServicePortName;
    const { samplesOf } = setUp([port(name, { connections: 7 })]);
    const [sample] = await samplesOf('userspace_proxy_connections_total');
    assert.deepEqual(
      [Object.fromEntries(sample?.labels ?? []), sample?.value],
      [{ namespace: 'n"s\\', service: 'we\n"b', port: 'po"rt} 1\n# EOF\\', protocol: 'TCP' }, 7],
    );
  });
});
