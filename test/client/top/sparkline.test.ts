import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ASCII, UNICODE } from '../../../src/client/top/frame.ts';
import { sparkline } from '../../../src/client/top/sparkline.ts';

test('a sparkline shows values against the greatest of them', () => {
  assert.equal(sparkline([0, 1, 2, 3, 4, 5, 6, 7, 8], 9, UNICODE.levels), ' ▁▂▃▄▅▆▇█');
  assert.equal(sparkline([0, 50, 100], 3, ASCII.levels), ' =#');
});

test('a sparkline shows that there was something, however little', () => {
  assert.equal(sparkline([0, 1, 1_000_000], 3, UNICODE.levels), ' ▁█');
});

test('a sparkline has the last values, at the right', () => {
  assert.equal(sparkline([8, 8, 4, 8], 2, UNICODE.levels), '▄█');
  assert.equal(sparkline([8], 4, UNICODE.levels), '   █');
  assert.equal(sparkline([0, 0], 3, UNICODE.levels), '   ');
  assert.equal(sparkline([1, 2], 0, UNICODE.levels), '');
});
