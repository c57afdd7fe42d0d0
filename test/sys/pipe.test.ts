import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pipe, read, resizePipe, splice } from '../../src/sys/descriptor.ts';
import { Memory } from '../../src/sys/memory.ts';
import { recv, send } from '../../src/sys/socket.ts';
import { EAGAIN } from '../../src/sys/sys-error.ts';
import { owned, ownedPair } from './descriptors.ts';

test('bytes go through a pipe from one socket to another, whole', (t) => {
  const [from, source] = ownedPair(t);
  const [to, sink] = ownedPair(t);
  const ends = new Int32Array(2);
  assert.equal(pipe(ends), 0);
  const [readEnd, writeEnd] = [owned(t, ends[0] ?? -1), owned(t, ends[1] ?? -1)];
  const memory = new Memory(50_000);
  memory.bytes.forEach((_, i, bytes) => {
    bytes[i] = i % 251;
  });
  assert.equal(splice(from, writeEnd, 50_000), -EAGAIN);
  assert.equal(send(source, memory, 0, 50_000), 50_000);
  assert.equal(splice(from, writeEnd, 30_000), 30_000);
  assert.equal(splice(readEnd, to, 30_000), 30_000);
  const received = new Memory(50_000);
  assert.equal(recv(sink, received, 0, 50_000), 30_000);
  assert.ok(received.bytes.subarray(0, 30_000).equals(memory.bytes.subarray(0, 30_000)));
  assert.equal(splice(from, writeEnd, 50_000), 20_000);
  assert.equal(read(readEnd, received, 0, 50_000), 20_000);
  assert.ok(received.bytes.subarray(0, 20_000).equals(memory.bytes.subarray(30_000)));
});

test('a pipe is enlarged as far as the user may, and says how large it is', (t) => {
  const ends = new Int32Array(2);
  pipe(ends);
  const [writeEnd] = [owned(t, ends[1] ?? -1), owned(t, ends[0] ?? -1)];
  assert.equal(resizePipe(writeEnd, 1 << 20), 1 << 20);
  assert.equal(resizePipe(writeEnd, 2 ** 31), 1 << 20, 'what cannot be had changes nothing');
});
