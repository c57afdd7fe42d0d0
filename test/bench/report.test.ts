import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Report } from '../../bench/report.ts';
import { CONTESTANTS, DELAY, measured, RATE } from './measurements.ts';

describe('the comparison', () => {
  test('is with the peer whose median is highest, round by round, and never with a limit', () => {
    const report = new Report(CONTESTANTS, [
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
    const report = new Report(CONTESTANTS, [
      ...measured('fast', 'delay', 11),
      ...measured('go', 'delay', 10),
      ...measured('nginx', 'delay', 20),
    ]);
    const comparison = report.againstBestPeer('row', DELAY);
    assert.deepEqual([comparison?.peer, comparison?.ratio, comparison?.isReached], ['go', 1.1, false]);
  });

  test('needs a peer and a value of ours', () => {
    assert.equal(new Report(CONTESTANTS, measured('fast', 'rate', 1)).againstBestPeer('row', RATE), undefined);
    assert.equal(new Report(CONTESTANTS, measured('go', 'rate', 1)).againstBestPeer('row', RATE), undefined);
  });
});

test('troubles name each failure and complaint once, with row and candidate', () => {
  const report = new Report(CONTESTANTS, [
    ...measured('nginx', 'rate', undefined, undefined),
    { row: 'row', candidate: 'go', round: 0, result: { values: { rate: 1 }, complaints: ['3 datagrams lost'] } },
  ]);
  assert.deepEqual(report.troubles(), ['row, nginx: broken (2 times)', 'row, go: 3 datagrams lost']);
});
