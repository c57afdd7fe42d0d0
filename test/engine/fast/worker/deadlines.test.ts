import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, Deadlines } from '../../../../src/engine/fast/worker/deadlines.ts';
import { seededRandom } from '../../../support/seeded-random.ts';

class Recorded extends Deadline {
  readonly #due: string[];
  readonly #name: string;
  readonly #then: () => void;

  constructor(due: string[], name: string, then: () => void = () => {}) {
    super();
    this.#due = due;
    this.#name = name;
    this.#then = then;
  }

  onDue(): void {
    this.#due.push(this.#name);
    this.#then();
  }
}

test('deadlines of different delays expire in their own time, once', () => {
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  deadlines.after(100).start(new Recorded(due, 'a'), 0);
  deadlines.after(20).start(new Recorded(due, 'b'), 50);
  deadlines.after(100).start(new Recorded(due, 'c'), 10);
  assert.equal(deadlines.firstDueMs(), 70);
  deadlines.expire(69);
  assert.deepEqual(due, []);
  deadlines.expire(70);
  assert.deepEqual(due, ['b']);
  assert.equal(deadlines.firstDueMs(), 100);
  deadlines.expire(200);
  assert.deepEqual(due, ['b', 'a', 'c']);
  assert.equal(deadlines.firstDueMs(), Number.POSITIVE_INFINITY);
});

test('starting again postpones a deadline, also into another list; cancelling twice is allowed', () => {
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  const [a, b] = [new Recorded(due, 'a'), new Recorded(due, 'b')];
  deadlines.after(100).start(a, 0);
  deadlines.after(100).start(b, 10);
  deadlines.after(100).start(a, 20);
  deadlines.expire(110);
  assert.deepEqual(due, ['b']);
  deadlines.after(500).start(a, 110);
  deadlines.expire(300);
  assert.deepEqual(due, ['b']);
  a.cancelDeadline();
  a.cancelDeadline();
  deadlines.expire(10_000);
  assert.deepEqual(due, ['b']);
});

test('a deadline that restarts when it is due waits for the next time, even without delay', () => {
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  const list = deadlines.after(0);
  const again: Recorded = new Recorded(due, 'again', () => list.start(again, 5));
  list.start(again, 5);
  deadlines.expire(5);
  assert.deepEqual(due, ['again']);
  deadlines.expire(5);
  assert.deepEqual(due, ['again', 'again']);
});

test('a deadline may cancel another that is due at the same time', () => {
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  const list = deadlines.after(10);
  const victim = new Recorded(due, 'victim');
  list.start(new Recorded(due, 'first', () => victim.cancelDeadline()), 0);
  list.start(victim, 0);
  list.start(new Recorded(due, 'last'), 0);
  deadlines.expire(10);
  assert.deepEqual(due, ['first', 'last']);
});

test('any order of starting and cancelling ends as a plain table of times says', () => {
  const random = seededRandom(7);
  const [deadlines, due] = [new Deadlines(), [] as string[]];
  const entries = Array.from({ length: 40 }, (_, i) => new Recorded(due, String(i)));
  const expected = new Map<string, number>();
  for (let nowMs = 0; nowMs < 5000; nowMs += Math.floor(random() * 4)) {
    const index = Math.floor(random() * entries.length);
    const entry = entries[index] as Recorded;
    if (random() < 0.3) {
      entry.cancelDeadline();
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
