import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { Deadline } from '../../../../src/engine/fast/worker/deadlines.ts';
import { EventLoop } from '../../../../src/engine/fast/worker/event-loop.ts';
import { STATUS, STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { EPOLLIN } from '../../../../src/sys/epoll.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { recv, SOCK_STREAM, send, socketpair } from '../../../../src/sys/socket.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';

const OWNER = 7;
const byte = new Memory(1);

function rig(t: TestContext) {
  const clock = new ManualClock();
  const owners = new Uint8Array(4096);
  const status = new Int32Array(STATUS_WORDS);
  const loop = new EventLoop({ clock, owner: OWNER, owners, status });
  t.after(() => {
    for (let fd = 0; fd < owners.length; fd++) if (owners[fd] === OWNER) close(fd);
  });
  /** Two connected sockets of the loop's. */
  const pair = (): readonly [number, number] => {
    const fds = new Int32Array(2);
    must('socketpair', socketpair(SOCK_STREAM, fds));
    const [one = -1, other = -1] = fds;
    loop.own(one);
    loop.own(other);
    return [one, other];
  };
  return { clock, owners, status, loop, pair };
}

function handler(onEvents: (events: number) => void, onShutdown: () => void = () => {}) {
  return { onEvents, onShutdown };
}

test('an event of a descriptor that was closed earlier in the batch does not reach its successor', (t) => {
  const { loop, pair } = rig(t);
  const seen: string[] = [];
  const [first, firstPeer] = pair();
  const [second, secondPeer] = pair();
  loop.watch(
    first,
    EPOLLIN,
    handler(() => {
      seen.push('first');
      recv(first, byte, 0, 1);
      loop.close(second);
      loop.close(secondPeer);
      // As accept would: the lowest free numbers are those just closed.
      const [reused, reusedPeer] = pair();
      assert.deepEqual([reused, reusedPeer].toSorted(), [second, secondPeer].toSorted());
      loop.watch(
        second,
        EPOLLIN,
        handler(() => seen.push('successor')),
      );
    }),
  );
  loop.watch(
    second,
    EPOLLIN,
    handler(() => seen.push('second')),
  );
  send(firstPeer, byte, 0, 1);
  send(secondPeer, byte, 0, 1);
  loop.turn(0);
  assert.deepEqual(seen, ['first']);
  loop.turn(0);
  assert.deepEqual(seen, ['first'], 'nothing has come for the successor');
  send(secondPeer, byte, 0, 1);
  loop.turn(0);
  assert.deepEqual(seen, ['first', 'successor']);
});

test('an event of a descriptor that nobody watches any more goes nowhere', (t) => {
  const { loop, pair } = rig(t);
  const seen: string[] = [];
  const [first, firstPeer] = pair();
  const [second, secondPeer] = pair();
  loop.watch(
    first,
    EPOLLIN,
    handler(() => {
      seen.push('first');
      loop.unwatch(second);
    }),
  );
  loop.watch(
    second,
    EPOLLIN,
    handler(() => seen.push('second')),
  );
  for (const peer of [firstPeer, secondPeer]) send(peer, byte, 0, 1);
  loop.turn(0);
  assert.deepEqual(seen, ['first']);
});

test('the table of owners tells which descriptors the worker has open', (t) => {
  const { loop, owners, pair } = rig(t);
  const before = owners.filter((owner) => owner === OWNER).length;
  const [one, other] = pair();
  assert.deepEqual([owners[one], owners[other]], [OWNER, OWNER]);
  loop.close(one);
  loop.reset(other);
  assert.deepEqual([owners[one], owners[other]], [0, 0]);
  loop.shutdown();
  assert.equal(before, 1, 'its epoll');
  assert.equal(owners.indexOf(OWNER), -1);
});

test('work put off runs in the next turn, which does not wait; work for the end runs in this one', (t) => {
  const { loop } = rig(t);
  const seen: string[] = [];
  const task = { run: () => seen.push('next') };
  loop.inNextTurn({
    run: () => {
      seen.push('first');
      loop.inNextTurn(task);
      loop.atEndOfTurn({ run: () => seen.push('end') });
    },
  });
  loop.turn(60_000);
  assert.deepEqual(seen, ['first', 'end']);
  loop.turn(60_000);
  assert.deepEqual(seen, ['first', 'end', 'next']);
  loop.turn(0);
  assert.deepEqual(seen, ['first', 'end', 'next']);
});

test('it waits no longer than until the first deadline', (t) => {
  const { clock, loop } = rig(t);
  let due = 0;
  class Counting extends Deadline {
    onDue(): void {
      due++;
    }
  }
  loop.deadlines.after(20).start(new Counting(), loop.nowMs);
  const began = performance.now();
  loop.turn(60_000);
  assert.ok(performance.now() - began < 10_000);
  assert.equal(due, 0, 'the clock says that it is too early');
  clock.advance(20);
  loop.turn(60_000);
  assert.equal(due, 1);
});

/** More events than one turn takes, each of which comes before the deadline of whoever waits for it. */
test('after a standstill what is ready is handled before any deadline is due, however many events there are', (t) => {
  const { clock, loop, pair } = rig(t);
  let due = 0;
  class Awaiting extends Deadline {
    onDue(): void {
      due++;
    }
  }
  let handled = 0;
  for (let i = 0; i < 400; i++) {
    const deadline = new Awaiting();
    const [fd, peer] = pair();
    const watching = handler(() => {
      handled++;
      loop.unwatch(fd);
      deadline.cancelDeadline();
    });
    loop.watch(fd, EPOLLIN, watching);
    loop.deadlines.after(250).start(deadline, loop.nowMs);
    send(peer, byte, 0, 1);
  }
  const alone = new Awaiting();
  loop.deadlines.after(250).start(alone, loop.nowMs);
  clock.advance(400);
  while (due === 0) loop.turn(0);
  assert.deepEqual({ handled, due }, { handled: 400, due: 1 });
});

test('what begins after a standstill in the middle of a turn has its whole time', (t) => {
  const { clock, loop, pair } = rig(t);
  let isDue = false;
  class Awaiting extends Deadline {
    onDue(): void {
      isDue = true;
    }
  }
  for (const onEvent of [() => clock.advance(400), () => loop.deadlines.after(250).start(new Awaiting(), loop.nowMs)]) {
    const [fd, peer] = pair();
    const watching = handler(() => {
      loop.unwatch(fd);
      onEvent();
    });
    loop.watch(fd, EPOLLIN, watching);
    send(peer, byte, 0, 1);
  }
  loop.turn(0);
  clock.advance(249);
  loop.turn(0);
  assert.equal(isDue, false);
  clock.advance(1);
  loop.turn(0);
  assert.equal(isDue, true);
});

test('a loop that is always behind with its events lets deadlines be due all the same, somewhat later', (t) => {
  const { clock, loop, pair } = rig(t);
  let isDue = false;
  class Awaiting extends Deadline {
    onDue(): void {
      isDue = true;
    }
  }
  const [fd, peer] = pair();
  loop.watch(
    fd,
    EPOLLIN,
    handler(() => loop.hasMore()),
  );
  send(peer, byte, 0, 1);
  loop.deadlines.after(250).start(new Awaiting(), loop.nowMs);
  clock.advance(250);
  let turns = 0;
  for (; !isDue; turns++) loop.turn(0);
  assert.ok(turns > 10 && turns < 1000, `${turns} turns`);
});

test('every turn shows, so that a stuck worker can be told from an idle one', (t) => {
  const { loop, status } = rig(t);
  loop.turn(0);
  loop.turn(0);
  assert.equal(status[STATUS.turns], 2);
});
