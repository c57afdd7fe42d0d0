import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ration } from '../../src/util/ration.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

function harness() {
  const clock = new ManualClock();
  const ration = new Ration<string>({ clock, burst: 3, intervalMs: 60_000 });
  const take = (key: string, count: number) => Array.from({ length: count }, () => ration.take(key));
  return { clock, take };
}

test('each key has its burst, and says once that it is used up', () => {
  const { take } = harness();
  assert.deepEqual(take('a', 5), ['allowed', 'allowed', 'allowed', 'first refusal', 'refused']);
  assert.deepEqual(take('b', 1), ['allowed']);
});

test('one more is allowed in each interval', () => {
  const { clock, take } = harness();
  take('a', 5);
  clock.advance(60_000);
  assert.deepEqual(take('a', 3), ['allowed', 'first refusal', 'refused']);
});

test('keys without end do not use up memory, nor give anybody more', () => {
  const { clock, take } = harness();
  take('a', 4);
  for (let i = 0; i < 1_023; i++) take(`key-${i}`, 1);
  assert.deepEqual(take('a', 1), ['refused']);
  clock.advance(180_000);
  for (let i = 0; i < 5_000; i++) take(`other-${i}`, 1);
  assert.deepEqual(take('a', 1), ['allowed']);
});
