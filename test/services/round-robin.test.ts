import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RoundRobin } from '../../src/services/round-robin.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { endpoint, NO_SHUFFLE } from './backends.ts';

function turns(roundRobin: RoundRobin, count: number): string[] {
  return Array.from({ length: count }, () => roundRobin.next()?.address ?? 'none');
}

test('turns go strictly round', () => {
  const roundRobin = new RoundRobin(NO_SHUFFLE);
  roundRobin.update([1, 2, 3].map(endpoint));
  assert.deepEqual(
    turns(roundRobin, 7),
    [1, 2, 3, 1, 2, 3, 1].map((host) => `10.0.0.${host}`),
  );
});

test('the list is shuffled evenly', () => {
  const counts = new Map<string, number>();
  const random = seededRandom(7);
  for (let i = 0; i < 6000; i++) {
    const roundRobin = new RoundRobin(random);
    roundRobin.update([1, 2, 3].map(endpoint));
    const order = turns(roundRobin, 3).join();
    counts.set(order, (counts.get(order) ?? 0) + 1);
  }
  assert.equal(counts.size, 6, 'every order occurs');
  for (const [order, count] of counts) assert.ok(count > 850 && count < 1150, `${order} came ${count} times in 6000`);
});

test('the same set in another order, with duplicates or as new objects is no change', () => {
  const roundRobin = new RoundRobin(NO_SHUFFLE);
  assert.equal(roundRobin.update([1, 2, 3].map(endpoint)), true);
  const first = roundRobin.next();
  assert.equal(roundRobin.update([3, 1, 1, 2, 3].map(endpoint)), false);
  assert.deepEqual(turns(roundRobin, 3), ['10.0.0.2', '10.0.0.3', '10.0.0.1']);
  assert.ok(first && roundRobin.has(first));
});

test('duplicates get one turn', () => {
  const roundRobin = new RoundRobin(NO_SHUFFLE);
  roundRobin.update([1, 1, 2].map(endpoint));
  assert.deepEqual(turns(roundRobin, 4), ['10.0.0.1', '10.0.0.2', '10.0.0.1', '10.0.0.2']);
});

test('a changed set begins anew over a fresh shuffle', () => {
  let draws = 0;
  const roundRobin = new RoundRobin(() => {
    draws++;
    return NO_SHUFFLE();
  });
  roundRobin.update([1, 2, 3].map(endpoint));
  assert.equal(draws, 2);
  roundRobin.next();
  assert.equal(roundRobin.update([1, 2, 4].map(endpoint)), true, 'as many as before, yet another set');
  assert.equal(draws, 4);
  assert.equal(roundRobin.next()?.address, '10.0.0.1');
});

test('the same address with another port is another endpoint', () => {
  const roundRobin = new RoundRobin(NO_SHUFFLE);
  roundRobin.update([endpoint(1)]);
  assert.equal(roundRobin.update([{ ...endpoint(1), port: 81 }]), true);
});

test('excluded endpoints are passed over, and the turn goes on behind the chosen one', () => {
  const roundRobin = new RoundRobin(NO_SHUFFLE);
  roundRobin.update([1, 2, 3, 4].map(endpoint));
  const first = roundRobin.next();
  const second = roundRobin.next();
  assert.ok(first && second);
  roundRobin.next();
  roundRobin.next();
  assert.equal(roundRobin.next(new Set([first, second]))?.address, '10.0.0.3');
  assert.equal(roundRobin.next()?.address, '10.0.0.4');
});

test('no endpoint, or all excluded, gives none and leaves the turn where it was', () => {
  const roundRobin = new RoundRobin(NO_SHUFFLE);
  assert.equal(roundRobin.next(), undefined);
  roundRobin.update([1, 2].map(endpoint));
  const one = roundRobin.next();
  const two = roundRobin.next();
  assert.ok(one && two);
  assert.equal(roundRobin.next(), one);
  assert.equal(roundRobin.next(new Set([one, two])), undefined);
  assert.equal(roundRobin.next(), two);
});

test('an endpoint that left and came back is another object', () => {
  const roundRobin = new RoundRobin(NO_SHUFFLE);
  roundRobin.update([1, 2].map(endpoint));
  const before = roundRobin.next();
  roundRobin.update([endpoint(2)]);
  roundRobin.update([1, 2].map(endpoint));
  assert.ok(before && !roundRobin.has(before));
});
