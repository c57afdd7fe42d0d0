import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callsAside } from '../../src/sys/calls.ts';

test('malloc is asked to give its free memory back, and says whether it had some', async () => {
  assert.ok([0, 1].includes(await callsAside.malloc_trim(0)));
});
