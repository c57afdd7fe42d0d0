import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { EventLoop } from '../../../../src/engine/fast/worker/event-loop.ts';
import { type Pipe, PipePool } from '../../../../src/engine/fast/worker/pipe-pool.ts';
import { STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';

function poolOf(t: TestContext, max: number, descriptorCeiling = 4096): PipePool {
  const owners = new Uint8Array(4096);
  const loop = new EventLoop({ clock: new ManualClock(), owner: 1, owners, status: new Int32Array(STATUS_WORDS) });
  t.after(() => {
    for (let fd = 0; fd < owners.length; fd++) if (owners[fd] === 1) close(fd);
  });
  return new PipePool({ loop, max, descriptorCeiling });
}

function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

test('pipes are large, limited to the maximum and one more, and reused', (t) => {
  const pool = poolOf(t, 1);
  const one = pool.take();
  assert.equal(pool.areScarce, false);
  const two = pool.take();
  assert.deepEqual([one?.capacity, two?.capacity], [1 << 20, 1 << 20]);
  assert.equal(pool.areScarce, true);
  assert.equal(pool.take(), undefined);
  pool.give(one as Pipe);
  assert.equal(pool.areScarce, false);
  assert.equal(pool.take(), one);
});

test('a pipe that still holds bytes is closed, and makes room for another', (t) => {
  const pool = poolOf(t, 1);
  const before = openDescriptors();
  pool.discard(pool.take() as Pipe);
  assert.equal(openDescriptors(), before);
  assert.notEqual(pool.take(), undefined);
});

test('a few idle pipes stay open, the others are closed', (t) => {
  const pool = poolOf(t, 40);
  const before = openDescriptors();
  const pipes = Array.from({ length: 40 }, () => pool.take() as Pipe);
  for (const pipe of pipes) pool.give(pipe);
  assert.equal(openDescriptors(), before + 2 * 16);
});

test('when descriptors run short there is no pipe, and nothing is left behind', (t) => {
  const pool = poolOf(t, 40, 3);
  const before = openDescriptors();
  assert.equal(pool.take(), undefined);
  assert.equal(openDescriptors(), before);
});
