import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Deadline } from '../../../../src/engine/core/deadlines.ts';
import { EventLoop } from '../../../../src/engine/fast/worker/event-loop.ts';
import { STATUS, STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { close, duplicate } from '../../../../src/sys/descriptor.ts';
import { EPOLLIN } from '../../../../src/sys/epoll.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { recv, SOCK_STREAM, send, socketpair } from '../../../../src/sys/socket.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';

const OWNER = 7;
const byte = new Memory(1);
const onFault = (err: unknown): never => {
  throw err;
};

/** The owner of all deadlines of a test. */
const waiting = {
  due: 0,
  onDue(): void {
    this.due++;
  },
};

function rig(t: TestContext) {
  const clock = new ManualClock();
  const owners = new Uint8Array(4096);
  const status = new Int32Array(STATUS_WORDS);
  const loop = new EventLoop({ clock, owner: OWNER, owners, status, onWaited: () => {}, onFault });
  waiting.due = 0;
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
  const watch = (fd: number, onEvents: () => unknown) =>
    loop.watch(fd, EPOLLIN, { onEvents: () => void onEvents(), onShutdown: () => {} });
  const waitFor = (ms: number) => {
    const deadline = new Deadline(waiting);
    loop.deadlines.after(ms).start(deadline, loop.nowMs);
    return deadline;
  };
  return { clock, owners, status, loop, pair, watch, waitFor };
}

test('events of a descriptor that was closed or unwatched earlier in the batch are dropped, not given to its successor', (t) => {
  const { loop, pair, watch, status } = rig(t);
  const seen: string[] = [];
  const [first, firstPeer] = pair();
  const [second, secondPeer] = pair();
  const [unwatched, unwatchedPeer] = pair();
  watch(first, () => {
    seen.push('first');
    recv(first, byte, 0, 1);
    loop.unwatch(unwatched);
    loop.close(second);
    loop.close(secondPeer);
    // As accept would: the lowest free numbers are those just closed.
    const [reused, reusedPeer] = pair();
    assert.deepEqual([reused, reusedPeer].toSorted(), [second, secondPeer].toSorted());
    watch(second, () => seen.push('successor'));
  });
  watch(second, () => seen.push('second'));
  watch(unwatched, () => seen.push('unwatched'));
  for (const peer of [firstPeer, secondPeer, unwatchedPeer]) send(peer, byte, 0, 1);
  loop.turn(0);
  assert.deepEqual(seen, ['first']);
  loop.turn(0);
  assert.deepEqual(seen, ['first'], 'nothing has come for the successor');
  send(secondPeer, byte, 0, 1);
  loop.turn(0);
  assert.deepEqual(seen, ['first', 'successor']);
  assert.equal(status[STATUS.turns], 3, 'each turn counts, so that a stuck worker differs from an idle one');
});

test('a socket that begins a new life drops the events of its former one in this turn, and has its own from then on', (t) => {
  const { loop, pair, watch } = rig(t);
  const seen: string[] = [];
  const [first, firstPeer] = pair();
  const [second, secondPeer] = pair();
  watch(first, () => {
    seen.push('first');
    recv(first, byte, 0, 1);
    loop.renew(second, { onEvents: () => void seen.push('new'), onShutdown: () => {} });
  });
  watch(second, () => seen.push('former'));
  for (const peer of [firstPeer, secondPeer]) send(peer, byte, 0, 1);
  loop.turn(0);
  assert.deepEqual(seen, ['first']);
  loop.turn(0);
  assert.deepEqual(seen, ['first', 'new'], 'what is still true is reported again');
});

test('the table of owners shows which descriptors the worker has open', (t) => {
  const { loop, owners, pair } = rig(t);
  const before = owners.filter((owner) => owner === OWNER).length;
  const [one, other] = pair();
  assert.deepEqual([owners[one], owners[other]], [OWNER, OWNER]);
  loop.close(one);
  loop.reset(other);
  assert.deepEqual([owners[one], owners[other]], [0, 0]);
  loop.shutdown();
  assert.equal(before, 2, 'its epoll and its marker');
  assert.equal(owners.indexOf(OWNER), -1);
});

test('postponed work runs in the next turn, which does not wait; work for the end runs in this turn', (t) => {
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

test('a turn waits until the first deadline at most', (t) => {
  const { clock, loop, waitFor } = rig(t);
  waitFor(20);
  const began = performance.now();
  loop.turn(60_000);
  assert.ok(performance.now() - began < 10_000);
  assert.equal(waiting.due, 0, 'the clock says that it is too early');
  clock.advance(20);
  loop.turn(60_000);
  assert.equal(waiting.due, 1);
});

test('after a standstill ready events are handled before any deadline expires, however many there are', (t) => {
  const { clock, loop, pair, watch, waitFor } = rig(t);
  let handled = 0;
  // More events than one turn takes, each of which came before its deadline.
  for (let i = 0; i < 400; i++) {
    const deadline = waitFor(250);
    const [fd, peer] = pair();
    watch(fd, () => {
      handled++;
      loop.unwatch(fd);
      deadline.cancel();
    });
    send(peer, byte, 0, 1);
  }
  waitFor(250);
  clock.advance(400);
  while (waiting.due === 0) loop.turn(0);
  assert.deepEqual({ handled, due: waiting.due }, { handled: 400, due: 1 });
});

test('a deadline that starts after a standstill in the middle of a turn has its whole time', (t) => {
  const { clock, loop, pair, watch, waitFor } = rig(t);
  for (const onEvent of [() => clock.advance(400), () => waitFor(250)]) {
    const [fd, peer] = pair();
    watch(fd, () => {
      loop.unwatch(fd);
      onEvent();
    });
    send(peer, byte, 0, 1);
  }
  loop.turn(0);
  clock.advance(249);
  loop.turn(0);
  assert.equal(waiting.due, 0);
  clock.advance(1);
  loop.turn(0);
  assert.equal(waiting.due, 1);
});

test('where each turn leaves events unhandled, a deadline waits only for those that were ready before it', (t) => {
  const { clock, loop, pair, watch, waitFor } = rig(t);
  for (let i = 0; i < 400; i++) {
    const [fd, peer] = pair();
    // Nobody reads it, so it is ready in each turn.
    watch(fd, () => {});
    send(peer, byte, 0, 1);
  }
  for (const round of [1, 2, 3]) {
    waitFor(250);
    clock.advance(250);
    let turns = 0;
    for (; waiting.due < round; turns++) loop.turn(0);
    assert.ok(turns >= 4 && turns < 10, `${turns} turns`);
  }
});

test('what no event can cancel is due in each turn, however busy the worker is', (t) => {
  const { clock, loop, pair, watch } = rig(t);
  for (let i = 0; i < 400; i++) {
    const [fd, peer] = pair();
    watch(fd, () => {});
    send(peer, byte, 0, 1);
  }
  loop.chores.after(5).start(new Deadline(waiting), loop.nowMs);
  clock.advance(5);
  loop.turn(0);
  assert.equal(waiting.due, 1);
});

test('the table of handlers stays an array where another worker has the descriptors between', (t) => {
  const { loop, owners, pair } = rig(t);
  setFlagsFromString('--allow-natives-syntax');
  const isDictionary = runInNewContext('(array) => %HasDictionaryElements(array)') as (array: unknown) => boolean;
  const [fd] = pair();
  const held: number[] = [];
  t.after(() => {
    for (const each of held) close(each);
  });
  // As another worker's.
  while ((held.at(-1) ?? 0) < fd + 2000) held.push(must('fcntl', duplicate(fd)));
  const [far, unwatched] = pair();
  assert.ok(far > fd + 2000 && far < owners.length);
  loop.close(unwatched);
  assert.equal(isDictionary(loop.handlers), false);
  loop.watch(far, EPOLLIN, { onEvents: () => {}, onShutdown: () => {} });
  assert.equal(isDictionary(loop.handlers), false);
});
