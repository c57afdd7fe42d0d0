import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dialTimeoutMs } from '../../src/services/retry-policy.ts';

test('dial timeouts are 250 ms, 500 ms, 1 s, 2 s, then 2 s for every further try', () => {
  assert.deepEqual([0, 1, 2, 3, 4, 5, 99].map(dialTimeoutMs), [250, 500, 1000, 2000, 2000, 2000, 2000]);
});
