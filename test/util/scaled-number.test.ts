import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { scaledNumber } from '../../src/util/scaled-number.ts';

describe('a scaled number', () => {
  const cases: readonly (readonly [value: number, digits: string, power: number])[] = [
    [0, '0', 0],
    [0.04, '0.0', 0],
    [0.44, '0.4', 0],
    [1, '1', 0],
    [9.94, '9.9', 0],
    [9.96, '10', 0],
    [999.4, '999', 0],
    [999.5, '1.0', 1],
    [9_940, '9.9', 1],
    [9_960, '10', 1],
    [999_499, '999', 1],
    [999_500, '1.0', 2],
    [5_000_000_000, '5000', 2],
  ];
  for (const [value, digits, power] of cases) {
    test(`${value} is ${digits} at power ${power}`, () => assert.deepEqual(scaledNumber(value, 2), { digits, power }));
  }
});
