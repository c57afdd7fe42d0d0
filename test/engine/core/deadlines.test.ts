import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Alarm, Deadline, Deadlines, type Loop, rounded } from '../../../src/engine/core/deadlines.ts';
import { seededRandom } from '../../support/seeded-random.ts';

/** A deadline that notes its name when it is due. */
function recorded(due: string[], name: string, then: () => void = () => {}): Deadline {
  return new Deadline({
    onDue: () => {
      due.push(name);
      then();
    },
  });
}

test('a deadline that restarts when it is due waits for the next time, even without delay', () => {
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  const list = deadlines.after(0);
  const again: Deadline = recorded(due, 'again', () => list.start(again, 5));
  list.start(again, 5);
  deadlines.expire(5);
  assert.deepEqual(due, ['again']);
  deadlines.expire(5);
  assert.deepEqual(due, ['again', 'again']);
});

test('a deadline may cancel another that is due at the same time', () => {
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  const list = deadlines.after(10);
  const victim = recorded(due, 'victim');
  list.start(
    recorded(due, 'first', () => victim.cancel()),
    0,
  );
  list.start(victim, 0);
  list.start(recorded(due, 'last'), 0);
  deadlines.expire(10);
  assert.deepEqual(due, ['first', 'last']);
});

test('deadlines start, restart and are cancelled in any order, and expire as a plain table of times says', () => {
  const random = seededRandom(7);
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  const entries = Array.from({ length: 40 }, (_, i) => recorded(due, String(i)));
  const expected = new Map<string, number>();
  for (let nowMs = 0; nowMs < 5000; nowMs += Math.floor(random() * 4)) {
    const index = Math.floor(random() * entries.length);
    const entry = entries[index] as Deadline;
    if (random() < 0.3) {
      entry.cancel();
      expected.delete(String(index));
    } else {
      const delayMs = [3, 50, 400][Math.floor(random() * 3)] as number;
      deadlines.after(delayMs).start(entry, nowMs);
      expected.set(String(index), nowMs + delayMs);
    }
    deadlines.expire(nowMs);
    const over = [...expected].filter(([, dueMs]) => dueMs <= nowMs).map(([name]) => name);
    assert.deepEqual(due.splice(0).toSorted(), over.toSorted());
    for (const name of over) expected.delete(name);
    assert.equal(deadlines.firstDueMs(), Math.min(...expected.values()));
  }
});

test('an alarm rings at most 50 ms late after any time, in few steps, whose delays are few', () => {
  let nowMs = 0;
  const deadlines = new Deadlines();
  const delays = new Set<number>();
  const loop = {
    get nowMs() {
      return nowMs;
    },
    start: (deadline: Deadline, delayMs: number) => {
      delays.add(delayMs);
      deadlines.after(delayMs).start(deadline, nowMs);
    },
  };
  for (const delayMs of [0, 1, 49, 50, 777, 5_000, 59_999.5, 123_456, 600_000]) {
    let rung = 0;
    const begunMs = nowMs;
    const alarm = new Alarm(loop as Loop, { onDue: () => rung++ });
    alarm.start(delayMs);
    let steps = 0;
    for (; rung === 0 && steps < 60; steps++) {
      nowMs = deadlines.firstDueMs();
      deadlines.expire(nowMs);
    }
    assert.ok(nowMs >= begunMs + delayMs && nowMs <= begunMs + delayMs + 50, `${delayMs}: ${nowMs - begunMs} ms`);
    assert.ok(steps < 50, `${steps} steps`);
    assert.equal(deadlines.firstDueMs(), Number.POSITIVE_INFINITY);
    alarm.start(delayMs);
    alarm.cancel();
    assert.equal(deadlines.firstDueMs(), Number.POSITIVE_INFINITY);
  }
  assert.deepEqual(delays, new Set([50, 1_000, 5_000, 60_000]));
});

test('delays of tenants are rounded up to two digits', () => {
  const cases = [0.5, 1, 99, 100, 101, 1_001, 29_999, 30_000, 86_400_001];
  assert.deepEqual(cases.map(rounded), [1, 1, 99, 100, 110, 1_100, 30_000, 30_000, 87_000_000]);
});
