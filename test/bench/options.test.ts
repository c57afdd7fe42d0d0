import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseOptions } from '../../bench/options.ts';

const CHOICE = { rows: ['bulk', 'dns'], candidates: ['fast', 'go', 'extra'], usual: ['fast', 'go'] };

test('all rows and the usual candidates are measured unless told otherwise, in the order of the table', () => {
  const { rows, candidates } = parseOptions([], CHOICE)!;
  assert.deepEqual([rows, candidates], [CHOICE.rows, CHOICE.usual]);
  assert.deepEqual(parseOptions(['--rows', 'dns,bulk'], CHOICE)?.rows, ['bulk', 'dns']);
  assert.deepEqual(parseOptions(['--candidates', 'extra,go'], CHOICE)?.candidates, ['go', 'extra']);
});

test('an unknown row and a number of rounds that is none are refused with what would do', () => {
  assert.throws(() => parseOptions(['--rows', 'bulk,udp'], CHOICE), /--rows knows no "udp"; it knows bulk, dns/);
  assert.throws(() => parseOptions(['--profile', 'udp'], CHOICE), /--profile knows no "udp"/);
  assert.throws(() => parseOptions(['--rounds', '0'], CHOICE), /--rounds takes a whole number/);
  assert.throws(() => parseOptions(['--seconds', '1.5'], CHOICE), /--seconds takes a whole number/);
});
