import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { dump } from 'js-yaml';
import { output } from '../netns/topology.ts';
import { ALERTS_FILE, configurationFor, deployedAlerts, JOB, undocumentedIn } from './alerts.ts';

const of = (metric: string, ...labels: readonly string[]) =>
  `${metric}{${[`job="${JOB}"`, 'instance="node-1"', ...labels].join(', ')}}`;
const webOf = (metric: string, ...labels: readonly string[]) =>
  of(metric, 'namespace="shop"', 'service="web"', 'port="http"', 'protocol="TCP"', ...labels);
/** The labels of the series that all Service ports beyond the bound share. */
const OTHERS = ['namespace=""', 'service=""', 'port=""', 'protocol=""'];
const NODE = { instance: 'node-1' };
const WEB = { namespace: 'shop', service: 'web', port: 'http' };
const IPV4 = { ...NODE, ip_family: 'IPv4' };

const LAST_SYNC = of('kubeproxy_sync_proxy_rules_last_timestamp_seconds', 'ip_family="IPv4"');
const RESTORE_FAILURES = of('kubeproxy_sync_proxy_rules_iptables_restore_failures_total', 'ip_family="IPv4"');
const API_STALE = of('userspace_proxy_api_stale_seconds');
const API_SERVER = of('userspace_proxy_api_server_usable', 'server="10.0.0.2:6443"');
const [OPEN, LIMIT] = [of('process_open_fds'), of('process_max_fds')];
const LOOP = of('nodejs_eventloop_lag_p99_seconds');
const STARTED = of('process_start_time_seconds');
const CONNECTIONS = webOf('userspace_proxy_connections_total');
const EXHAUSTED = webOf('userspace_proxy_turned_away_total', 'reason="exhausted"');
const WAITED = webOf('userspace_proxy_turned_away_total', 'reason="wait-timeout"');
const NO_ENDPOINTS = webOf('userspace_proxy_turned_away_total', 'reason="no-endpoints"');
const RETRIES = webOf('userspace_proxy_connect_retries_total');
const PAUSES = webOf('userspace_proxy_accept_pauses_total');
const LIMITED = webOf('userspace_proxy_limited_total');
const EJECTED = webOf('userspace_proxy_ejected');
const [ERRORS, WARNINGS] = ['error', 'warn'].map((level) =>
  of('userspace_proxy_log_lines_total', `level="${level}"`),
) as [string, string];

function programming(within30s: string, within60s: string): Record<string, string> {
  const bucket = (le: string) =>
    of('kubeproxy_network_programming_duration_seconds_bucket', 'ip_family="IPv4"', `le="${le}"`);
  return { [bucket('30')]: within30s, [bucket('60')]: within60s, [bucket('+Inf')]: within60s };
}

/**
 * By alert, in the order of the rules. `series` are in the notation of `promtool test rules`, a value each minute. `at`
 * is the first minute in which the alert fires, with these labels besides name, severity and job, or, without labels,
 * one in which it does not.
 */
type Case = readonly [
  when: string,
  series: Readonly<Record<string, string>>,
  at: number,
  fires?: Readonly<Record<string, string>>,
];
const CASES: Readonly<Record<string, readonly Case[]>> = {
  KubeUserspaceProxyDown: [
    ['a target does not answer', { [of('up')]: '1x3 0x10' }, 9, NODE],
    ['there is no target', { 'up{job="another"}': '1x10' }, 5, {}],
    ['a target was away for a moment', { [of('up')]: '1x3 0x2 1x10' }, 9],
  ],
  KubeUserspaceProxyRulesStale: [
    ['there has been no sync for 5 minutes', { [LAST_SYNC]: '0 60 120 120x10' }, 8, IPV4],
    ['the last sync is never older than 170 s', { [LAST_SYNC]: '-170+60x20' }, 15],
  ],
  KubeUserspaceProxyRestoreFailing: [
    ['one run fails each minute', { [RESTORE_FAILURES]: '0+1x20' }, 9, IPV4],
    ['two runs failed once', { [RESTORE_FAILURES]: '0x5 2x15' }, 15],
  ],
  KubeUserspaceProxyApiServerStale: [
    ['the API server has been away for 7 minutes', { [API_STALE]: '0+60x7' }, 7, NODE],
    ['changes are never missed for more than 4 minutes', { [API_STALE]: '240x20' }, 15],
  ],
  KubeUserspaceProxyApiServerUnusable: [
    [
      'one in reserve cannot be used, seen by one of two nodes',
      { [API_SERVER]: '0x30', [API_SERVER.replace('node-1', 'node-2')]: '1x30' },
      15,
      { server: '10.0.0.2:6443' },
    ],
    ['it was restarted', { [API_SERVER]: '1x3 0x11 1x20' }, 20],
  ],
  KubeUserspaceProxyProgrammingSlow: [
    ['a tenth of the changes takes more than 30 s', programming('0+9x40', '0+10x40'), 16, NODE],
    ['one in a thousand does', programming('0+999x40', '0+1000x40'), 30],
    ['nothing changes', programming('9x40', '10x40'), 30],
  ],
  KubeUserspaceProxyServiceUnreachable: [
    ['a tenth of the clients is turned away', { [EXHAUSTED]: '0+6x20', [CONNECTIONS]: '0+60x20' }, 6, WEB],
    [
      'one in a hundred is, and some because the last endpoint had just gone',
      { [EXHAUSTED]: '0+1x20', [NO_ENDPOINTS]: '0+50x20', [CONNECTIONS]: '0+100x20' },
      15,
    ],
    [
      'the series of many Service ports falls as one of them goes',
      {
        [of('userspace_proxy_turned_away_total', ...OTHERS, 'reason="exhausted"')]: '1000-1x20',
        [of('userspace_proxy_connections_total', ...OTHERS)]: '1000-1x20',
      },
      15,
    ],
  ],
  KubeUserspaceProxyServiceNotWoken: [
    ['the time of some clients runs out again and again', { [WAITED]: '0+1x30' }, 11, WEB],
    ['that of some did once', { [WAITED]: '0x3 5x30' }, 15],
  ],
  KubeUserspaceProxyEndpointsFailing: [
    ['every fifth connection needs another endpoint', { [RETRIES]: '0+12x40', [CONNECTIONS]: '0+60x40' }, 16, WEB],
    ['it did so for 10 minutes, as in a rollout', { [RETRIES]: '0+12x8 96x32', [CONNECTIONS]: '0+60x40' }, 30],
  ],
  KubeUserspaceProxyEndpointsEjected: [
    ['an endpoint is ejected all the time', { [EJECTED]: '1x40' }, 15, WEB],
    ['it was for 10 minutes', { [EJECTED]: '1x10 0x30' }, 30],
  ],
  KubeUserspaceProxyDescriptorsLow: [
    ['nine in ten are in use', { [OPEN]: '900x20', [LIMIT]: '1000x20' }, 5, NODE],
    ['seven in ten are in use', { [OPEN]: '700x20', [LIMIT]: '1000x20' }, 10],
  ],
  KubeUserspaceProxyAcceptingPaused: [
    ['accepting paused once', { [PAUSES]: '0x3 1x20' }, 5, NODE],
    ['that was 10 minutes ago', { [PAUSES]: '0x3 1x20' }, 15],
  ],
  KubeUserspaceProxyUdpLimited: [
    ['datagrams are dropped all the time', { [LIMITED]: '0+5x20' }, 11, { ...NODE, ...WEB }],
    ['some were dropped once', { [LIMITED]: '0x3 50x20' }, 15],
  ],
  KubeUserspaceProxyEventLoopSlow: [
    ['it is late by half a second all the time', { [LOOP]: '0.5x20' }, 10, NODE],
    ['it was for five minutes, as with ten thousand new Services', { [LOOP]: '0.5x5 0.01x20' }, 15],
  ],
  KubeUserspaceProxyRestarting: [
    ['it starts every five minutes', { [STARTED]: '0x4 300x4 600x4 900x4 1200x4 1500x4' }, 21, NODE],
    ['it was upgraded twice', { [STARTED]: '0x4 300x4 600x20' }, 25],
  ],
  KubeUserspaceProxyErrors: [
    ['an error is logged', { [ERRORS]: '0x3 1x30' }, 5, { ...NODE, level: 'error' }],
    ['warnings are, and an error half an hour ago', { [ERRORS]: '0x3 1x40', [WARNINGS]: '0+1x40' }, 35],
  ],
};

describe('deploy/prometheus', () => {
  const alerts = deployedAlerts();
  let directory: string;

  before(() => {
    directory = mkdtempSync(join(tmpdir(), 'kup-alerts-'));
  });

  after(() => rmSync(directory, { recursive: true }));

  const promtool = (...argv: string[]) => output(['promtool', ...argv]);
  const write = (name: string, content: object) => {
    const path = join(directory, name);
    writeFileSync(path, dump(content));
    return path;
  };

  test('promtool accepts the rules and the configuration', async () => {
    await promtool('check', 'rules', '--lint-fatal', ALERTS_FILE);
    // Debian's build knows no Kubernetes.
    const configuration = configurationFor(['127.0.0.1:10249'], { interval: '15s' });
    await promtool('check', 'config', write('prometheus.yaml', configuration));
  });

  test('the configuration has the job name of the alerts, and keeps the labels of Services', () => {
    const { scrape_configs: scrapes } = configurationFor([], { interval: '15s' }) as {
      scrape_configs: readonly Record<string, unknown>[];
    };
    assert.deepEqual([scrapes[0]?.['job_name'], scrapes[0]?.['honor_labels']], [JOB, true]);
    for (const { alert, expr } of alerts) {
      const selectors = expr.match(/\{[^}]*\}/g) ?? [];
      assert.ok(selectors.length > 0, alert);
      for (const selector of selectors) assert.ok(selector.includes(`job="${JOB}"`), `${alert}: ${selector}`);
    }
  });

  test('each alert reads documented metrics, says where to read on, and has a row in docs/observe.md and a test', () => {
    const page = readFileSync(new URL('../../docs/observe.md', import.meta.url), 'utf8');
    const rows = [...page.matchAll(/^\| `(KubeUserspaceProxy\w+)` \| (\w+) \|/gm)];
    assert.deepEqual(
      rows.map(([, alert, severity]) => [alert, severity]),
      alerts.map(({ alert, labels }) => [alert, labels?.['severity']]),
    );
    assert.deepEqual(
      Object.keys(CASES),
      alerts.map(({ alert }) => alert),
    );
    for (const { alert, expr, annotations } of alerts) {
      assert.deepEqual(undocumentedIn(expr), [], alert);
      assert.deepEqual(Object.keys(annotations ?? {}), ['summary', 'description', 'runbook'], alert);
      assert.equal(annotations?.['runbook'], 'docs/observe.md#alerts', alert);
    }
  });

  for (const [alert, cases] of Object.entries(CASES)) {
    for (const one of cases) {
      const [when, , , fires] = one;
      test(`${alert} ${fires === undefined ? 'stays quiet' : 'fires'}: ${when}`, async () => {
        await promtool('test', 'rules', write('test.yaml', unitTest(alert, one)));
      });
    }
  }
});

/** For `promtool test rules`. */
function unitTest(alert: string, [, series, at, fires]: Case): object {
  const severity = deployedAlerts().find((one) => one.alert === alert)?.labels?.['severity'];
  const labels = Object.entries({ alertname: alert, alertstate: 'firing', job: JOB, severity, ...fires })
    .map(([label, value]) => `${label}="${value}"`)
    .join(', ');
  const expect = (minute: number, samples: readonly object[]) => ({
    expr: `ALERTS{alertname="${alert}", alertstate="firing"}`,
    eval_time: `${minute}m`,
    exp_samples: samples,
  });
  return {
    rule_files: [ALERTS_FILE],
    tests: [
      {
        interval: '1m',
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        promql_expr_test:
          fires === undefined
            ? [expect(at, [])]
            : [expect(at - 1, []), expect(at, [{ labels: `ALERTS{${labels}}`, value: 1 }])],
      },
    ],
  };
}
