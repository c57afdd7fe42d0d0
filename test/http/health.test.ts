import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Health } from '../../src/http/health.ts';
import type { SyncHealth } from '../../src/model/metrics.ts';
import { ManualClock } from '../fakes/manual-clock.ts';

function setUp() {
  const clock = new ManualClock(1_000);
  const health = new Health(clock, 60_000);
  return { clock, health, sync: health.of('IPv4') };
}

function synced(sync: SyncHealth): void {
  sync.syncBegins();
  sync.updated();
}

test('a proxy is healthy from the start, and stays so without changes', () => {
  const { clock, health } = setUp();
  clock.advance(3_600_000);
  assert.deepEqual(health.report(), {
    healthy: true,
    lastUpdated: undefined,
    now: { wallMs: 3_601_000, monotonicMs: 3_600_000 },
  });
});

test('a change that waits for the timeout makes it unhealthy, the first sync included', () => {
  const { clock, health, sync } = setUp();
  sync.queuedUpdate();
  clock.advance(59_999);
  assert.equal(health.report().healthy, true);
  clock.advance(1);
  assert.equal(health.report().healthy, false);
});

test('further changes do not delay that', () => {
  const { clock, health, sync } = setUp();
  for (let i = 0; i < 60; i++) {
    sync.queuedUpdate();
    clock.advance(1_000);
  }
  assert.equal(health.report().healthy, false);
});

test('a sync makes it healthy again and is remembered', () => {
  const { clock, health, sync } = setUp();
  sync.queuedUpdate();
  clock.advance(100_000);
  synced(sync);
  clock.advance(100_000);
  const { healthy, lastUpdated } = health.report();
  assert.equal(healthy, true);
  assert.deepEqual(lastUpdated, { wallMs: 101_000, monotonicMs: 100_000 });
  sync.queuedUpdate();
  clock.advance(59_999);
  assert.equal(health.report().healthy, true);
});

test('a change that comes during a sync goes on waiting when that one ends', () => {
  const { clock, health, sync } = setUp();
  sync.syncBegins();
  clock.advance(30_000);
  sync.queuedUpdate();
  sync.updated();
  clock.advance(59_999);
  assert.equal(health.report().healthy, true);
  clock.advance(1);
  assert.equal(health.report().healthy, false);
  sync.syncBegins();
  assert.equal(health.report().healthy, false);
  sync.updated();
  assert.equal(health.report().healthy, true);
});

test('a sync that fails leaves its changes waiting since they came', () => {
  const { clock, health, sync } = setUp();
  sync.queuedUpdate();
  sync.syncBegins();
  clock.advance(40_000);
  sync.queuedUpdate();
  sync.syncBegins();
  clock.advance(20_000);
  assert.equal(health.report().healthy, false);
});

test('each address family counts, and the stuck one gives the time', () => {
  const { clock, health, sync } = setUp();
  const ipv6 = health.of('IPv6');
  synced(sync);
  clock.advance(1_000);
  synced(ipv6);
  assert.equal(health.report().lastUpdated?.monotonicMs, 1_000);
  sync.queuedUpdate();
  clock.advance(60_000);
  synced(ipv6);
  assert.deepEqual([health.report().healthy, health.report().lastUpdated?.monotonicMs], [false, 0]);
  assert.equal(health.lastUpdated('IPv6')?.monotonicMs, 61_000);
  synced(sync);
  assert.equal(health.report().healthy, true);
});
