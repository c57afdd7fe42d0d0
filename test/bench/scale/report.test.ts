import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ScaleResult } from '../../../bench/scale/measure.ts';
import { percentile } from '../../../bench/scale/percentile.ts';
import { costPlot, scaleTable } from '../../../bench/scale/report.ts';

const result: ScaleResult = {
  services: 1_000,
  flavour: 'nft',
  syncFromListsMs: undefined,
  syncFromStartMs: 1_234.4,
  syncDelayP99Ms: 1,
  syncDelayMaxMs: 2,
  createdP50Ms: 3,
  createdP99Ms: 4,
  movedP50Ms: 5,
  movedP99Ms: 6,
  deletedP50Ms: 7,
  deletedP99Ms: 8,
  churnDelayP99Ms: 9,
  churnDelayMaxMs: 10,
  proxyCpuMsPerChange: 0.5,
  iptablesCpuMsPerChange: 1.5,
  connectFirstP50Ms: 0.071,
  connectLastP50Ms: 0.072,
  connectDirectP50Ms: 0.05,
  repairMs: 11,
  rssMiB: 90,
  peakMiB: 95,
  helperMiB: 48,
};

describe('the report of scripts/bench scale', () => {
  const rowOf = (table: string, label: string) => table.split('\n').find((line) => line.startsWith(label)) ?? '';

  test('has a column for each result, and what kube-proxy needed', () => {
    const table = scaleTable([result, { ...result, services: 5_000, flavour: 'legacy', syncFromListsMs: 900 }]);
    assert.match(table.split('\n')[0]!, /1,000 nft {2,}5,000 legacy {2,}userspace 1,000/);
    assert.match(rowOf(table, 'first full sync, from start'), /1,234 +1,234 +13,000 +240,000 +5,700$/);
    assert.match(rowOf(table, 'first full sync, from lists'), / – +900$/);
    assert.match(rowOf(table, 'connect, last rule'), /0\.072 +0\.072 +0\.135$/);
  });

  test('plots what a change costs in all', () => {
    const dear = { ...result, services: 10_000, iptablesCpuMsPerChange: 3.5 };
    const [, cheapBar, dearBar] = costPlot([result, dear]).split('\n');
    assert.match(cheapBar!, /^1,000 nft +#{30} +2\.00$/);
    assert.match(dearBar!, /^10,000 nft +#{60} +4\.00$/);
  });

  test('percentiles are values that were measured', () => {
    const values = [5, 1, 4, 2, 3];
    assert.deepEqual(
      [0, 20, 21, 50, 99, 100].map((percent) => percentile(values, percent)),
      [1, 1, 2, 3, 5, 5],
    );
    assert.equal(percentile([7], 50), 7);
  });
});
