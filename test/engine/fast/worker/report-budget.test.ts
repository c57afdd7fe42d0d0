import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReportBudget } from '../../../../src/engine/fast/worker/report-budget.ts';

function takenOf(budget: ReportBudget, asked: number, nowMs: number): number {
  return Array.from({ length: asked }, () => budget.take(nowMs)).filter(Boolean).length;
}

test('a burst is told whole, a flood ten times a second', () => {
  const budget = new ReportBudget();
  assert.equal(takenOf(budget, 1000, 50), 64);
  let taken = 0;
  for (let nowMs = 50; nowMs < 10_050; nowMs += 7) taken += takenOf(budget, 100, nowMs);
  assert.ok(taken >= 98 && taken <= 100, String(taken));
});

test('after a quiet time there is room for a burst again, and not for more', () => {
  const budget = new ReportBudget();
  takenOf(budget, 1000, 0);
  assert.equal(takenOf(budget, 1000, 3_600_000), 64);
});
