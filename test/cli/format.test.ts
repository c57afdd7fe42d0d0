import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { largeNumber, minutesAndSeconds, oneColumnEach, shortDuration } from '../../src/cli/format.ts';

describe('text for columns', () => {
  test('has no character that moves the cursor, is wide, or has no width', () => {
    assert.equal(oneColumnEach('a\u001b[2Jb\n\u202ec'), 'a\\u001b[2Jb\\u000a\\u202ec');
    assert.equal(oneColumnEach('\u4f60\u{1f600}e\u0301 \u00e9'), '??e? \u00e9');
  });
});

describe('an expiry', () => {
  const cases: readonly (readonly [ms: number, text: string])[] = [
    [0, '00:00'],
    [250, '00:00'],
    [59_600, '01:00'],
    [898_000, '14:58'],
    [6_000_000, '100:00'],
    [-5, '00:00'],
  ];
  for (const [ms, text] of cases) test(`${ms} ms is ${text}`, () => assert.equal(minutesAndSeconds(ms), text));
});

describe('a short duration', () => {
  const cases: readonly (readonly [ms: number, text: string])[] = [
    [-1_000, '0s'],
    [999, '0s'],
    [59_999, '59s'],
    [60_000, '1m'],
    [312_000, '5m12s'],
    [3_600_000, '1h'],
    [3_601_000, '1h'],
    [11_040_000, '3h4m'],
    [12 * 86_400_000 + 3 * 3_600_000, '12d3h'],
  ];
  for (const [ms, text] of cases) test(`${ms} ms is ${text}`, () => assert.equal(shortDuration(ms), text));
});

describe('a large number', () => {
  // print_largenum of ipvsadm.c
  const cases: readonly (readonly [value: number | undefined, text: string, exact: string])[] = [
    [0, '        0', '        0'],
    [99_999_999, ' 99999999', ' 99999999'],
    [100_000_000, '  100000K', '100000000'],
    [999_999_999, '  999999K', '999999999'],
    [1_000_000_000, '    1000M', '1000000000'],
    [99_999_999_999, '   99999M', '99999999999'],
    [100_000_000_000, '     100G', '100000000000'],
    [99_999_999_999_999, '   99999G', '99999999999999'],
    [100_000_000_000_000, '     100T', '100000000000000'],
    [2.6, '        3', '        3'],
    [undefined, '        -', '        -'],
  ];
  for (const [value, text, exact] of cases) {
    test(`${value} is "${text}"`, () => {
      assert.equal(largeNumber(value, false), text);
      assert.equal(largeNumber(value, true).trimStart(), exact.trimStart());
    });
  }

  test('keeps its distance from the one before when it is exact', () => {
    assert.equal(largeNumber(1, true) + largeNumber(123_456_789_012, true), '        1 123456789012');
  });
});
