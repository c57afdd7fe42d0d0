import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Report } from '../../bench/report.ts';
import { table } from '../../bench/table.ts';
import { CONTESTANTS, DELAY, measured, RATE } from './measurements.ts';

const ROW = { name: 'row', what: 'a row', metrics: [RATE, DELAY] };

/** The cells of the table's line that begins with this label. */
function line(report: Report, label: string): string[] {
  const lines = table(report, [ROW]).split('\n');
  return lines
    .find((text) => text.trimStart().startsWith(label))!
    .trim()
    .split(/\s{2,}/);
}

describe('the table', () => {
  test('shows the goal, the ratio with its range, the other engine, and medians with their spread', () => {
    const report = new Report(CONTESTANTS, [
      ...measured('fast', 'rate', 1100, 1210, 1320),
      ...measured('node', 'rate', 550, 550, 550),
      ...measured('go', 'rate', 1000, 1000, 1000),
    ]);
    assert.deepEqual(line(report, 'rate'), [
      'rate',
      '/s',
      '≥ 1.20',
      '1.21 go',
      '(1.10–1.32)',
      'ok',
      '2.20',
      '1,210.0 ±9%',
      '550.0 ±0%',
      '1,000.0 ±0%',
      '–',
      '–',
    ]);
  });

  test('says so where a goal is missed, where nothing worked, and marks what only sometimes worked', () => {
    const report = new Report(CONTESTANTS, [
      ...measured('fast', 'rate', 5, undefined),
      ...measured('go', 'rate', 10, 10),
      ...measured('nginx', 'rate', undefined, undefined),
    ]);
    const cells = line(report, 'rate');
    assert.ok(cells.includes('MISSED'), cells.join());
    assert.ok(cells.includes('5.0 ±0%!'), cells.join());
    assert.equal(cells.at(-2), 'FAILED');
  });

  test('keeps its columns in line', () => {
    const report = new Report(CONTESTANTS, [...measured('fast', 'rate', 123_456), ...measured('go', 'rate', 1)]);
    const [head, , , cells] = table(report, [ROW]).split('\n');
    assert.equal(head!.lastIndexOf('go') + 'go'.length, cells!.lastIndexOf('±0%') + '±0%'.length);
  });

  test('leaves out the column of a second engine that was not measured', () => {
    const contestants = CONTESTANTS.filter(({ name }) => name !== 'node');
    const report = new Report(contestants, [...measured('fast', 'rate', 3), ...measured('go', 'rate', 1)]);
    assert.deepEqual(line(report, 'rate').slice(3, 8), ['3.00 go', '(3.00–3.00)', 'ok', '3.0 ±0%', '1.0 ±0%']);
  });
});
