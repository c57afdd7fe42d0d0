import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { largeNumber } from '../../../../src/operate/command/format/number.ts';

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
