import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goTime, rfc3339 } from '../../src/util/timestamp.ts';

test('RFC 3339 has milliseconds and UTC', () => {
  assert.equal(rfc3339(1_795_152_216_843), '2026-11-20T05:23:36.843Z');
});

test('Go’s form drops trailing zeros of the second, never of the monotonic reading', () => {
  const base = Date.UTC(2026, 10, 20, 5, 20, 0);
  const cases: readonly (readonly [wallMs: number, monotonicMs: number, expected: string])[] = [
    [base + 843, 4_005.531_936, '2026-11-20 05:20:00.843 +0000 UTC m=+4.005531936'],
    [base + 840, 0, '2026-11-20 05:20:00.84 +0000 UTC m=+0.000000000'],
    [base + 100, 1, '2026-11-20 05:20:00.1 +0000 UTC m=+0.001000000'],
    [base, 86_400_000, '2026-11-20 05:20:00 +0000 UTC m=+86400.000000000'],
    [base + 30_000, 12_000, '2026-11-20 05:20:30 +0000 UTC m=+12.000000000'],
    [base + 1, 12_000, '2026-11-20 05:20:00.001 +0000 UTC m=+12.000000000'],
  ];
  for (const [wallMs, monotonicMs, expected] of cases) assert.equal(goTime({ wallMs, monotonicMs }), expected);
});

test('Go’s zero time stands for never', () => {
  assert.equal(goTime(undefined), '0001-01-01 00:00:00 +0000 UTC');
});
