import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Memory } from '../../src/sys/memory.ts';
import { recv, send } from '../../src/sys/socket.ts';
import { ownedPair } from './descriptors.ts';

test('bytes outside a memory are never handed to the kernel', (t) => {
  const [one, other] = ownedPair(t);
  const memory = new Memory(16);
  for (const [offset, length] of [
    [0, 17],
    [16, 1],
    [-1, 4],
    [0, -1],
    [Number.NaN, 1],
    [0, Number.NaN],
  ] as const) {
    assert.throws(() => send(one, memory, offset, length), RangeError);
    assert.throws(() => recv(other, memory, offset, length), RangeError);
  }
  assert.equal(send(one, memory, 16, 0), 0);
});
