import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { EventLoop } from '../../../../src/engine/fast/worker/event-loop.ts';
import { ParkedSockets } from '../../../../src/engine/fast/worker/parked-sockets.ts';
import { STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { EPOLLERR, EPOLLHUP } from '../../../../src/sys/epoll.ts';
import { AF_INET, SOCK_DGRAM, socket } from '../../../../src/sys/socket.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';

function rig(t: TestContext) {
  const owners = new Uint8Array(4096);
  const status = new Int32Array(STATUS_WORDS);
  const loop = new EventLoop({
    clock: new ManualClock(),
    owner: 1,
    owners,
    status,
    onWaited: () => {},
    onFault: () => {},
  });
  t.after(() => {
    for (const [fd, owner] of owners.entries()) if (owner === 1) close(fd);
  });
  const parked = new ParkedSockets(loop, { take: () => {} });
  const park = (kind: string): number => {
    const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
    loop.own(fd);
    assert.ok(parked.park(fd, kind));
    return fd;
  };
  const isOpen = (fd: number) => owners[fd] === 1;
  return { loop, parked, park, isOpen };
}

const ready = () => true;

test('the oldest of its kind is used first, and one that cannot be used yet waits behind the others', (t) => {
  const { parked, park } = rig(t);
  const [one, two, other] = [park('a'), park('a'), park('b')];
  assert.equal(
    parked.take('a', (fd) => fd !== one),
    -1,
  );
  assert.deepEqual([parked.take('a', ready), parked.take('a', ready), parked.take('a', ready)], [two, one, -1]);
  assert.equal(parked.take('b', ready), other);
});

test('there are at most so many of one kind, whatever the others have', (t) => {
  const { parked, park } = rig(t);
  for (let i = 0; i < 128; i++) park('a');
  assert.equal(parked.park(0, 'a'), false);
  park('b');
});

test('an error closes one, the end of its connection does not', (t) => {
  const { parked, park, isOpen } = rig(t);
  const [one, two] = [park('a'), park('a')];
  parked.onEvents(EPOLLHUP, one);
  parked.onEvents(EPOLLERR | EPOLLHUP, two);
  assert.deepEqual([isOpen(one), isOpen(two)], [true, false]);
  assert.deepEqual([parked.take('a', ready), parked.take('a', ready)], [one, -1]);
});

test('all can be closed at once', (t) => {
  const { parked, park, isOpen } = rig(t);
  const fds = [park('a'), park('b')];
  assert.equal(parked.closeAll(), true);
  assert.deepEqual(fds.filter(isOpen), []);
  assert.equal(parked.closeAll(), false);
  assert.equal(parked.take('a', ready), -1);
});
