import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Balancer, equal } from './balancer.ts';

const SLOW_START_MS = 30_000;

for (const name of ['lc', 'wlc', 'sed', 'nq'] as const) {
  test(`${name}: the share of a new endpoint grows over the time, instead of all at once`, () => {
    const balancer = new Balancer(name, equal(4), { slowStartMs: SLOW_START_MS });
    balancer.nowMs = 1000;
    assert.deepEqual([...balancer.held(400).values()], [100, 100, 100, 100], 'those from the start have no slow start');
    balancer.update(equal(5));
    const held = (): number => balancer.picker.pool.find('10.0.0.5:80')?.open ?? 0;
    balancer.held(100);
    assert.ok(held() >= 8 && held() <= 15, `at the start: ${held()}`);
    balancer.nowMs += SLOW_START_MS / 2;
    balancer.held(100);
    assert.ok(held() >= 50 && held() <= 75, `half-way: ${held()}`);
    balancer.nowMs += SLOW_START_MS / 2;
    balancer.held(100);
    assert.ok(held() >= 135 && held() <= 141, `at the end: ${held()}`);
  });
}

test('twos: a new endpoint has a smaller share for as long', () => {
  const balancer = new Balancer('twos', equal(4), { slowStartMs: SLOW_START_MS });
  balancer.held(400);
  balancer.nowMs = 1000;
  balancer.update(equal(5));
  const fresh = balancer.picker.pool.find('10.0.0.5:80');
  balancer.held(100);
  assert.ok(fresh !== undefined && fresh.open <= 15, `${fresh?.open}`);
  balancer.nowMs += SLOW_START_MS;
  balancer.held(400);
  assert.ok(fresh.open > 100, `${fresh.open}`);
});

test('without a slow start a new endpoint gets every connection until it has as many', () => {
  const balancer = new Balancer('lc', equal(4));
  balancer.held(400);
  balancer.update(equal(5));
  assert.deepEqual([...balancer.held(100)], [[5, 100]]);
});
