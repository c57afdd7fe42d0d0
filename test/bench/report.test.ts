import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Measurement, Report } from '../../bench/report.ts';

const CANDIDATES = [
  { name: 'fast', kind: 'ours', carriesUdp: true },
  { name: 'node', kind: 'ours', carriesUdp: true },
  { name: 'go', kind: 'peer', carriesUdp: true },
  { name: 'nginx', kind: 'peer', carriesUdp: true },
  { name: 'direct', kind: 'limit', carriesUdp: true },
] as const;
const RATE = { key: 'rate', label: 'rate', unit: '/s', decimals: 1, better: 'more', goal: 1.2 } as const;
const DELAY = { key: 'delay', label: 'delay', unit: 'µs', decimals: 0, better: 'less', goal: 1 } as const;
const ROW = { name: 'row', what: 'a row', isUdp: false, metrics: [RATE, DELAY] };

/** One measurement for each value, in rounds 0, 1, …; `undefined` fails. */
function measured(candidate: string, key: string, ...values: readonly (number | undefined)[]): Measurement[] {
  return values.map((value, round) => ({
    row: 'row',
    candidate,
    round,
    ...(value === undefined ? { failure: 'broken' } : { result: { values: { [key]: value }, complaints: [] } }),
  }));
}

/** The cells of the table's line that begins with this label. */
function line(report: Report, label: string): string[] {
  const lines = report.table([ROW]).split('\n');
  return lines
    .find((text) => text.trimStart().startsWith(label))!
    .trim()
    .split(/\s{2,}/);
}

describe('the comparison', () => {
  test('is with the peer whose median is highest, round by round, and never with a limit', () => {
    const report = new Report(CANDIDATES, [
      ...measured('fast', 'rate', 12, 24, 39),
      ...measured('go', 'rate', 10, 20, 30),
      ...measured('nginx', 'rate', 19, 1, 1),
      ...measured('direct', 'rate', 99, 99, 99),
    ]);
    assert.deepEqual(report.againstBestPeer('row', RATE), {
      peer: 'go',
      ratio: 1.2,
      least: 1.2,
      most: 1.3,
      isReached: true,
    });
  });

  test('is with the lowest where less is better, and the goal is then a limit', () => {
    const report = new Report(CANDIDATES, [
      ...measured('fast', 'delay', 11),
      ...measured('go', 'delay', 10),
      ...measured('nginx', 'delay', 20),
    ]);
    const comparison = report.againstBestPeer('row', DELAY);
    assert.deepEqual([comparison?.peer, comparison?.ratio, comparison?.isReached], ['go', 1.1, false]);
  });

  test('needs a peer and a value of ours', () => {
    assert.equal(new Report(CANDIDATES, measured('fast', 'rate', 1)).againstBestPeer('row', RATE), undefined);
    assert.equal(new Report(CANDIDATES, measured('go', 'rate', 1)).againstBestPeer('row', RATE), undefined);
  });
});

describe('the table', () => {
  test('shows the goal, the ratio with its range, the other engine, and medians with their spread', () => {
    const report = new Report(CANDIDATES, [
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
    const report = new Report(CANDIDATES, [
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
    const report = new Report(CANDIDATES, [...measured('fast', 'rate', 123_456), ...measured('go', 'rate', 1)]);
    const [head, , , cells] = report.table([ROW]).split('\n');
    assert.equal(head!.indexOf('fast', 40) + 'fast'.length, cells!.indexOf('±0%') + '±0%'.length);
  });
});

test('troubles name each failure and complaint once, with row and candidate', () => {
  const report = new Report(CANDIDATES, [
    ...measured('nginx', 'rate', undefined, undefined),
    { row: 'row', candidate: 'go', round: 0, result: { values: { rate: 1 }, complaints: ['3 datagrams lost'] } },
  ]);
  assert.deepEqual(report.troubles(), ['row, nginx: broken (2 times)', 'row, go: 3 datagrams lost']);
});
