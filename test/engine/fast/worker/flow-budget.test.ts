import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FlowBudget } from '../../../../src/engine/fast/worker/flow-table.ts';
import { STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';

test('the bound holds for the flows of all workers together', () => {
  const status = new SharedArrayBuffer(3 * STATUS_WORDS * 4);
  const [one, , three] = [0, 1, 2].map((index) => new FlowBudget(status, index, 5));
  for (let i = 0; i < 3; i++) one?.begin();
  three?.begin();
  assert.deepEqual([one?.isSpent, three?.isSpent], [false, false]);
  three?.begin();
  assert.deepEqual([one?.isSpent, three?.isSpent], [true, true]);
  one?.end();
  assert.deepEqual([one?.isSpent, three?.isSpent], [false, false]);
});
