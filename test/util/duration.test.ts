import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { formatDuration, parseDuration } from '../../src/util/duration.ts';

describe('a duration', () => {
  const valid: readonly (readonly [string, number])[] = [
    ['0', 0],
    ['-0', 0],
    ['+0', 0],
    ['0s', 0],
    ['250ms', 250],
    ['5s', 5_000],
    ['+5s', 5_000],
    ['-5s', -5_000],
    ['1.5h', 5_400_000],
    ['-1.5h', -5_400_000],
    ['.5s', 500],
    ['5.s', 5_000],
    ['1h15m30.918s', 4_530_918],
    ['3h2m', 10_920_000],
    // Units may come in any order and more than once.
    ['1s1h1s', 3_602_000],
    ['100us', 0.1],
    ['100µs', 0.1],
    ['100μs', 0.1],
    ['1ns', 0.000_001],
    // Cut off below a nanosecond, not rounded.
    ['0.9ns', 0],
    ['0.3333333333333333333333h', 1_199_999.999_999],
    ['9223372036854775807ns', 9_223_372_036_854.775],
    ['-9223372036854775808ns', -9_223_372_036_854.775],
    ['0100ms', 100],
  ];
  for (const [text, ms] of valid) {
    test(`${text} is ${ms} ms`, () => {
      assert.equal(Math.abs(parseDuration(text) ?? Number.NaN), Math.abs(ms));
      assert.ok(ms === 0 || Math.sign(parseDuration(text) ?? 0) === Math.sign(ms));
    });
  }

  const invalid = [
    '',
    '+',
    '-',
    '--5s',
    '3',
    '3.5',
    's',
    '.s',
    '+.s',
    '-.5',
    '5 s',
    ' 5s',
    '5s ',
    '5s\n',
    '5S',
    '5sec',
    '5d',
    '5e3s',
    '1.2.3s',
    '0x5s',
    '5s-5s',
    '00',
    '٣s',
    '9223372036854775808ns',
    '-9223372036854775809ns',
    '2562048h',
    '99999999999999999999999h',
  ];
  for (const text of invalid) {
    test(`${JSON.stringify(text)} is none`, () => assert.equal(parseDuration(text), undefined));
  }

  const shown: readonly (readonly [number, string])[] = [
    [0, '0s'],
    [0.000_001, '1ns'],
    [0.1, '100µs'],
    [250, '250ms'],
    [1.5, '1.5ms'],
    [1_500, '1.5s'],
    [30_000, '30s'],
    [300_000, '5m0s'],
    [3_600_000, '1h0m0s'],
    [4_530_918, '1h15m30.918s'],
    [-5_000, '-5s'],
  ];
  for (const [ms, text] of shown) {
    test(`of ${ms} ms is shown as ${text} and read back`, () => {
      assert.equal(formatDuration(ms), text);
      assert.equal(parseDuration(text), ms);
    });
  }
});
