import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Spread, STATUS, STATUS_WORDS } from '../../../../src/engine/fast/worker/protocol.ts';
import { Spreading } from '../../../../src/engine/fast/worker/spreading.ts';

const WORKERS = 3;
const OTHERS = [1, 2];
const WINDOWS = 20;

/** Worker 0 of three, and what the others say of themselves. */
function rig(spread: Spread = 'when-busy') {
  const machine = { idleCores: 4 };
  const status = new SharedArrayBuffer(WORKERS * STATUS_WORDS * 4);
  const words = new Int32Array(status);
  const idleCores = { at: () => machine.idleCores };
  const spreading = new Spreading({ index: 0, workers: WORKERS, status, spread, idleCores });
  let nowMs = 0;
  const stuck = new Set<number>();
  const say = (worker: number, { isWaiting, active = 0 }: { isWaiting: boolean; active?: number }) => {
    words[worker * STATUS_WORDS + STATUS.isWaiting] = isWaiting ? 1 : 0;
    words[worker * STATUS_WORDS + STATUS.activeConnections] = active;
  };
  /** Turns of a millisecond, each of which has waited for that much of it and has an event of each connection. */
  const pass = (windows: number, waited: number, connections = 0) => {
    for (let turn = 0; turn < windows * 25; turn++) {
      nowMs++;
      for (const other of OTHERS) {
        const turns = other * STATUS_WORDS + STATUS.turns;
        if (!stuck.has(other)) words[turns] = (words[turns] as number) + 1;
      }
      spreading.turn(nowMs, waited);
      if (turn % 25 === 1) for (let i = 0; i < connections; i++) spreading.count(-1);
    }
  };
  const moved = () => {
    const to: (number | undefined)[] = [];
    for (let i = 0; i < 100; i++) to.push(spreading.forConnection(OTHERS));
    return to.filter((each) => each !== undefined);
  };
  const clients = () => Array.from({ length: 100 }, () => spreading.forClient(OTHERS));
  return { machine, spreading, stuck, say, pass, moved, clients };
}

test('a worker that has time to wait passes nothing on', () => {
  const { spreading, say, pass, moved, clients } = rig();
  for (const other of OTHERS) say(other, { isWaiting: true });
  pass(WINDOWS, 0.5, 40);
  assert.equal(spreading.wants, false);
  assert.deepEqual(moved(), []);
  assert.deepEqual(new Set(clients()), new Set([undefined]));
});

test('a busy worker shares its connections with those that wait, in equal parts', () => {
  const { say, pass, moved } = rig();
  for (const other of OTHERS) say(other, { isWaiting: true });
  pass(WINDOWS, 0.01, 30);
  const to = moved();
  assert.equal(to.length, 20, 'the others get two thirds');
  assert.equal(to.filter((each) => each === 1).length, 10);
});

test('new clients go to others the more, the longer it is busy, and come back when it is not', () => {
  const { say, pass, clients } = rig();
  for (const other of OTHERS) say(other, { isWaiting: true });
  pass(2, 0.01);
  const passedOn = () => clients().filter((each) => each !== undefined).length;
  const first = passedOn();
  pass(WINDOWS, 0.01);
  const later = passedOn();
  assert.ok(first > 0 && first < later, `${first}, then ${later}`);
  assert.ok(later >= 65 && later <= 67, 'each has a third');
  pass(WINDOWS, 0.9);
  assert.equal(passedOn(), 0);
});

test('all stays where the machine has no core to spare', () => {
  const { machine, spreading, say, pass, moved, clients } = rig();
  for (const other of OTHERS) say(other, { isWaiting: true });
  machine.idleCores = 0.3;
  pass(WINDOWS, 0.01, 30);
  assert.deepEqual(moved(), []);
  assert.deepEqual(new Set(clients()), new Set([undefined]));
  assert.equal(spreading.wants, false);
});

test('what does not come back stays until there was a core to spare for half a second', () => {
  const { machine, say, pass, moved } = rig();
  for (const other of OTHERS) say(other, { isWaiting: true });
  pass(WINDOWS - 1, 0.01, 30);
  assert.deepEqual(moved(), []);
  machine.idleCores = 0.3;
  pass(WINDOWS / 2, 0.01, 30);
  machine.idleCores = 4;
  pass(WINDOWS / 2, 0.01, 30);
  assert.deepEqual(moved(), [], 'time without counts against it');
  pass(1, 0.01, 30);
  assert.deepEqual(moved().length, 20);
  pass(1, 0.5, 30);
  assert.deepEqual(moved(), [], 'it has time again');
});

test('a busy worker leaves out another busy one while there is one that waits', () => {
  const { say, pass, moved, clients } = rig();
  say(1, { isWaiting: false, active: 1 });
  say(2, { isWaiting: true });
  pass(WINDOWS, 0.01, 30);
  assert.deepEqual(new Set(moved()), new Set([2]));
  assert.deepEqual(new Set(clients().filter((each) => each !== undefined)), new Set([2]));
});

test('when all are busy, open connections are evened out and new clients stay', () => {
  const { say, pass, moved, clients } = rig();
  say(1, { isWaiting: false, active: 10 });
  say(2, { isWaiting: false, active: 2 });
  pass(3, 0.01, 8);
  assert.deepEqual(moved(), [2, 2, 2]);
  say(2, { isWaiting: false, active: 7 });
  pass(1, 0.01, 8);
  assert.deepEqual(moved(), [], 'one more or less is even');
  assert.deepEqual(new Set(clients()), new Set([undefined]));
});

test('when all are busy, one that does not turn any more gets nothing', () => {
  const { stuck, say, pass, moved } = rig();
  say(1, { isWaiting: false, active: 10 });
  say(2, { isWaiting: false, active: 2 });
  pass(3, 0.01, 20);
  stuck.add(2);
  pass(2, 0.01, 20);
  assert.deepEqual(new Set(moved()), new Set([1]));
  stuck.add(1);
  pass(2, 0.01, 20);
  assert.deepEqual(moved(), []);
});

test('nothing is passed on while held, or to a worker that is no carrier', () => {
  const { spreading, say, pass, moved } = rig();
  for (const other of OTHERS) say(other, { isWaiting: true });
  pass(WINDOWS, 0.01, 30);
  assert.equal(spreading.forConnection([]), undefined);
  spreading.hold();
  assert.deepEqual(moved(), []);
  spreading.resume();
  assert.equal(moved().length, 20, 'nothing of the share was used up');
});

test('a connection counts once in each window', () => {
  const { spreading, say, pass, moved } = rig();
  for (const other of OTHERS) say(other, { isWaiting: true });
  pass(WINDOWS, 0.01);
  let window = -1;
  for (let i = 0; i < 300; i++) window = spreading.count(window);
  pass(1, 0.01);
  assert.deepEqual(moved(), [], 'one connection stays');
});
