import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { stringify } from 'yaml';
import { output } from '../netns/topology.ts';
import { ALERT_CASES, type AlertCase, JOB } from './alert-cases.ts';
import { ALERTS_FILE, configurationFor, deployedAlerts } from './alerts.ts';
import { isDocumented, metricsIn } from './promql.ts';

const OPERATIONS = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');

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
    writeFileSync(path, stringify(content));
    return path;
  };

  test('promtool accepts the rules', async () => {
    await promtool('check', 'rules', '--lint-fatal', ALERTS_FILE);
  });

  test('promtool accepts the configuration', async () => {
    // Debian's build knows no Kubernetes.
    await promtool(
      'check',
      'config',
      write('prometheus.yaml', configurationFor(['127.0.0.1:10249'], { interval: '15s' })),
    );
  });

  test('the configuration scrapes under the name that the alerts look for, and keeps the labels of Services', () => {
    const { scrape_configs } = configurationFor([], { interval: '15s' }) as {
      scrape_configs: readonly Record<string, unknown>[];
    };
    assert.equal(scrape_configs[0]?.['job_name'], JOB);
    assert.equal(scrape_configs[0]?.['honor_labels'], true);
    for (const { alert, expr } of alerts) {
      const selectors = [...expr.matchAll(/\{[^}]*\}/g)].map(([selector]) => selector);
      assert.ok(selectors.length > 0, alert);
      for (const selector of selectors) assert.ok(selector.includes(`job="${JOB}"`), `${alert}: ${selector}`);
    }
  });

  test('each alert says how bad it is, what it means and where to read on', () => {
    assert.equal(new Set(alerts.map(({ alert }) => alert)).size, alerts.length);
    for (const { alert, for: duration, labels, annotations } of alerts) {
      assert.match(alert, /^KubeUserspaceProxy[A-Z]/);
      assert.match(duration ?? '', /^\d+m$/, alert);
      assert.match(labels?.['severity'] ?? '', /^(critical|warning|info)$/, alert);
      assert.deepEqual(Object.keys(annotations ?? {}), ['summary', 'description', 'runbook'], alert);
      assert.match(annotations?.['summary'] ?? '', /\.$/, alert);
      assert.equal(annotations?.['runbook'], 'docs/operations.md#alerts', alert);
    }
  });

  test('each alert has a row in docs/operations.md, and each row an alert', () => {
    const section = /^### Alerts\n(.*?)^##/ms.exec(OPERATIONS)?.[1] ?? '';
    const rows = [...section.matchAll(/^\| `(\w+)` \| (\w+) \| ([^|]+) \| ((?:[^|]|\\\|)+) \|$/gm)];
    assert.deepEqual(
      rows.map(([, alert, severity]) => [alert, severity]),
      alerts.map(({ alert, labels }) => [alert, labels?.['severity']]),
    );
  });

  test('alerts read only metrics that docs/metrics.md lists', () => {
    for (const { alert, expr } of alerts) {
      const metrics = [...metricsIn(expr)];
      assert.ok(metrics.length > 0, alert);
      assert.deepEqual(
        metrics.filter((metric) => !isDocumented(metric)),
        [],
        alert,
      );
    }
  });

  test('each alert is tried', () => {
    assert.deepEqual(
      [...new Set(ALERT_CASES.map(({ alert }) => alert))],
      alerts.map(({ alert }) => alert),
    );
  });

  for (const one of ALERT_CASES) {
    test(`${one.alert} ${one.fires === undefined ? 'stays quiet' : 'fires'}: ${one.when}`, async () => {
      await promtool('test', 'rules', write('test.yaml', unitTest(one)));
    });
  }
});

/** For `promtool test rules`. */
function unitTest({ alert, series, at, fires }: AlertCase): object {
  const labels = Object.entries({ alertname: alert, alertstate: 'firing', job: JOB, ...fires })
    .map(([label, value]) => `${label}="${value}"`)
    .join(', ');
  const expect = (minute: number, samples: readonly object[]) => ({
    expr: `ALERTS{alertname="${alert}", alertstate="firing"}`,
    eval_time: `${minute}m`,
    exp_samples: samples,
  });
  const severity = deployedAlerts().find((one) => one.alert === alert)?.labels?.['severity'];
  return {
    rule_files: [ALERTS_FILE],
    tests: [
      {
        interval: '1m',
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        promql_expr_test: [
          ...(fires === undefined ? [] : [expect(at - 1, [])]),
          expect(at, fires === undefined ? [] : [{ labels: `ALERTS{${labels}, severity="${severity}"}`, value: 1 }]),
        ],
      },
    ],
  };
}
