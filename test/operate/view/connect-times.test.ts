import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CONNECT_TIMES, type Counters, connectTimeOf } from '../../../src/model/data-plane.ts';
import { ConnectTimes, connectTime } from '../../../src/operate/view/connect-times.ts';
import { noCounters } from '../../../src/operate/view/traffic.ts';
import { address } from '../../support/model.ts';

const ID = 'shop/web';
const POD = { address: address('10.244.1.7'), port: 8080, name: '10.244.1.7:8080' };

/** As an engine counts dials that took so long. */
function counted(...times: readonly number[]): Counters {
  const counters = noCounters();
  for (const ms of times) {
    counters.connects += 1;
    counters[connectTimeOf(ms)] += 1;
  }
  return counters;
}

test('each time has its counter, the bound of one included', () => {
  for (const [counter, atMost] of CONNECT_TIMES) assert.equal(connectTimeOf(atMost), counter);
  assert.equal(connectTimeOf(0), 'connects0.5ms');
  assert.equal(connectTimeOf(0.51), 'connects1ms');
  assert.equal(connectTimeOf(60_000), 'connectsSlower');
});

test('median and 99th percentile lie within the bounds of what was counted', () => {
  const times = new ConnectTimes();
  const of = (...ms: readonly number[]) => connectTime(times.since(ID, counted(...ms)));
  assert.equal(of(), undefined);
  const quick = of(...Array.from({ length: 100 }, () => 0.2))!;
  assert.deepEqual(quick, { p50: 0.25, p99: 0.495, count: 100 });
  const mixed = of(...Array.from({ length: 98 }, () => 0.8), 40, 40)!;
  assert.ok(mixed.p50 > 0.5 && mixed.p50 < 1 && mixed.p99 > 10 && mixed.p99 <= 50, JSON.stringify(mixed));
  assert.deepEqual(of(5_000), { p50: 1_000, p99: 1_000, count: 1 });
});

test('only the last minutes count, of a Service port and of each of its endpoints', () => {
  const times = new ConnectTimes();
  const note = (counters: Counters) => {
    times.note(ID, counters);
    times.note(ID, counters, POD);
  };
  const count = (counters: Counters) =>
    [undefined, POD].map((each) => connectTime(times.since(ID, counters, each))?.count);
  // What a predecessor has counted belongs to no period.
  assert.equal(times.begin(0), true);
  note(counted(1, 1));
  times.forget();
  assert.deepEqual(count(counted(1, 1)), [undefined, undefined]);
  assert.deepEqual(count(counted(1, 1, 1)), [1, 1]);
  assert.equal(times.begin(119_999), false);
  assert.equal(times.begin(120_000), true);
  note(counted(1, 1, 1));
  // Those of the last period, and of the current one.
  assert.deepEqual(count(counted(1, 1, 1, 1)), [2, 2]);
  assert.equal(times.begin(240_000), true);
  note(counted(1, 1, 1, 1));
  assert.deepEqual(count(counted(1, 1, 1, 1)), [1, 1]);
  assert.equal(times.begin(360_000), true);
  assert.deepEqual(count(counted(1, 1, 1, 1)), [undefined, undefined]);
  // Counters that have fallen began again.
  assert.deepEqual(count(counted(1)), [1, 1]);
});
