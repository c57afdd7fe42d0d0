import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FastHandOver, type HandOverHost } from '../../../src/engine/fast/hand-over.ts';

test('a hand-over that was given up while workers were slow freezes nobody later', async () => {
  const held = Promise.withResolvers<void>();
  const calls: string[] = [];
  const worker = {
    hold: () => held.promise,
    freeze: async () => void calls.push('freeze'),
    unfreeze: (kind: string) => void calls.push(kind),
  };
  const handOver = new FastHandOver({ workers: [worker] } as unknown as HandOverHost);
  const frozen = handOver.freeze();
  handOver.thaw();
  held.resolve();
  await assert.rejects(frozen, /given up/);
  assert.deepEqual(calls, ['thaw']);
});
