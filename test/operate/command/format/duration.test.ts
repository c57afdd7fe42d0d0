import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { minutesAndSeconds, shortDuration } from '../../../../src/operate/command/format/duration.ts';

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
