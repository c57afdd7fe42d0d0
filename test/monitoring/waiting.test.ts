import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { stringify } from 'yaml';
import { output } from '../netns/topology.ts';
import { JOB } from './alert-cases.ts';
import { deployedDashboard, interpolate } from './dashboard.ts';

const LAST = 'kubeproxy_sync_proxy_rules_last_timestamp_seconds';
const QUEUED = 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds';
const START = 'process_start_time_seconds';

interface Case {
  readonly when: string;
  /** In the notation of `promtool test rules`, a value each minute, of the metrics of one proxy. */
  readonly series: Readonly<Record<string, string>>;
  /** Ten minutes after 1970 began. */
  readonly shown: number;
}

const CASES: readonly Case[] = [
  {
    when: 'the rules are stuck, although changes come all the time',
    series: { [LAST]: '60x10', [QUEUED]: '0+60x10', [START]: '30x10' },
    shown: 540,
  },
  {
    when: 'there has been no sync yet',
    series: { [LAST]: '0x10', [QUEUED]: '45x10', [START]: '30x10' },
    shown: 570,
  },
  {
    when: 'nothing has changed since the last sync',
    series: { [LAST]: '0+60x10', [QUEUED]: '60x10', [START]: '30x10' },
    shown: 0,
  },
];

describe('the dashboard shows for how long rules have waited for a sync', () => {
  const dashboard = deployedDashboard();
  const { targets = [] } = dashboard.panels.find(({ title }) => title === 'Queued') ?? {};
  const query = targets.find(({ legendFormat }) => legendFormat === 'seconds without a sync')?.expr ?? '';
  const choices = new Map([
    ['job', JOB],
    ['instance', 'all'],
  ]);

  for (const { when, series, shown } of CASES) {
    test(when, async () => {
      assert.notEqual(query, '');
      const directory = mkdtempSync(join(tmpdir(), 'kup-waiting-'));
      try {
        const path = join(directory, 'test.yaml');
        const expr = interpolate(query, { dashboard, choices, builtIn: {} });
        writeFileSync(path, stringify({ rule_files: [], tests: [unitTest(series, expr, shown)] }));
        await output(['promtool', 'test', 'rules', path]);
      } finally {
        rmSync(directory, { recursive: true });
      }
    });
  }
});

/** For `promtool test rules`. */
function unitTest(series: Case['series'], expr: string, shown: number): object {
  const labelsOf = (metric: string) => {
    const family = metric === START ? '' : ', ip_family="IPv4"';
    return `{job="${JOB}", instance="node-1"${family}}`;
  };
  return {
    interval: '1m',
    input_series: Object.entries(series).map(([metric, values]) => ({ series: metric + labelsOf(metric), values })),
    promql_expr_test: [{ expr, eval_time: '10m', exp_samples: [{ labels: '{}', value: shown }] }],
  };
}
