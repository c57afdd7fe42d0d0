import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { dump } from 'js-yaml';
import { output } from '../netns/topology.ts';
import { JOB, undocumentedIn } from './alerts.ts';
import { deployedDashboard, interpolate } from './dashboard.ts';

/* What the queries answer is tested with a real Prometheus, in live.test.ts. */

const COLUMNS = 24;

describe('deploy/grafana/kube-userspace-proxy.json', () => {
  const dashboard = deployedDashboard();
  const targets = dashboard.panels.flatMap(({ title, targets: own = [] }) => own.map(({ expr }) => ({ title, expr })));

  test('it can be imported: it depends on no Grafana instance, and panels do not overlap', () => {
    for (const key of ['id', '__inputs', '__requires', 'version']) assert.ok(!(key in dashboard), key);
    assert.equal(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of dashboard.panels) {
      const { x, y, w, h } = gridPos;
      for (let cell = 0; cell < w * h; cell++) {
        const at = `${x + (cell % w)},${y + Math.floor(cell / w)}`;
        assert.ok(!taken.has(at), `${title} lies on another panel at ${at}`);
        taken.add(at);
      }
      assert.ok(x + w <= COLUMNS, title);
    }
  });

  test('each panel reads the chosen source and documented metrics, narrowed to the chosen proxies', () => {
    const sources = dashboard.panels.flatMap(({ datasource, targets: own = [] }) => [
      datasource,
      ...own.map((target) => target.datasource),
    ]);
    for (const source of sources) assert.ok(source === undefined || source.uid === `\${datasource}`);
    assert.ok(targets.length > 0);
    for (const { title, expr } of targets) {
      assert.deepEqual(undocumentedIn(expr), [], title);
      for (const [selector] of expr.matchAll(/\b[a-z]\w+\{[^}]*\}/g)) {
        for (const matcher of ['job="$job"', 'instance=~"$instance"']) {
          assert.ok(selector.includes(matcher), `${title}: ${selector} lacks ${matcher}`);
        }
      }
    }
  });

  const LAST = 'kubeproxy_sync_proxy_rules_last_timestamp_seconds';
  const QUEUED = 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds';
  const START = 'process_start_time_seconds';
  for (const [when, series, shown] of [
    [
      'the rules are stuck, although changes come all the time',
      { [LAST]: '60x10', [QUEUED]: '0+60x10', [START]: '30x10' },
      540,
    ],
    ['there has been no sync yet', { [LAST]: '0x10', [QUEUED]: '45x10', [START]: '30x10' }, 570],
    ['nothing has changed since the last sync', { [LAST]: '0+60x10', [QUEUED]: '60x10', [START]: '30x10' }, 0],
  ] as const) {
    test(`rules have waited ${shown} s for a sync when ${when}`, async (t) => {
      const panel = dashboard.panels.find(({ title }) => title === 'Queued');
      const query = panel?.targets?.find(({ legendFormat }) => legendFormat === 'seconds without a sync')?.expr ?? '';
      assert.notEqual(query, '');
      const choices = new Map([
        ['job', JOB],
        ['instance', 'all'],
      ]);
      const directory = mkdtempSync(join(tmpdir(), 'kup-waiting-'));
      t.after(() => rmSync(directory, { recursive: true }));
      const path = join(directory, 'test.yaml');
      const unit = {
        interval: '1m',
        input_series: Object.entries(series).map(([metric, values]) => ({
          series: `${metric}{job="${JOB}", instance="node-1"${metric === START ? '' : ', ip_family="IPv4"'}}`,
          values,
        })),
        promql_expr_test: [
          {
            expr: interpolate(query, { dashboard, choices, builtIn: {} }),
            eval_time: '10m',
            exp_samples: [{ labels: '{}', value: shown }],
          },
        ],
      };
      writeFileSync(path, dump({ rule_files: [], tests: [unit] }));
      await output(['promtool', 'test', 'rules', path]);
    });
  }
});
