import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  boundText,
  CONNECT_BOUNDS_MS,
  CONNECT_TIMES,
  type Counters,
  connectTimeOf,
} from '../../../src/model/data-plane.ts';
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
  for (const [index, bound] of CONNECT_BOUNDS_MS.entries()) assert.equal(connectTimeOf(bound), CONNECT_TIMES[index]);
  assert.equal(connectTimeOf(0), 'connects0.25ms');
  assert.equal(connectTimeOf(0.51), 'connects1ms');
  assert.equal(connectTimeOf(60_000), 'connects4096ms');
});

test('median and 99th percentile are bounds, each at most twice what was measured', () => {
  const times = new ConnectTimes();
  const of = (...ms: readonly number[]) => connectTime(times.since(ID, counted(...ms)));
  const hundred = (ms: number) => Array.from({ length: 100 }, () => ms);
  assert.equal(of(), undefined);
  for (let ms = 0.13; ms < 2_000; ms *= 1.1) {
    const { p50, p99 } = of(...hundred(ms))!;
    assert.ok(p50 === p99 && p50 >= ms && p50 < 2 * ms, `${ms} ms is shown as ${p50} and ${p99}`);
  }
  assert.deepEqual(of(...hundred(60)), { p50: 64, p99: 64, count: 100 });
  assert.deepEqual(of(...hundred(0.8).slice(2), 40, 40), { p50: 1, p99: 64, count: 100 });
  assert.deepEqual(of(...hundred(0.8).slice(1), 40), { p50: 1, p99: 1, count: 100 });
  assert.deepEqual(of(60_000), { p50: 4_096, p99: 4_096, count: 1 });
});

test('a bound is shown as one', () => {
  assert.deepEqual([0.25, 64, 2_048, 4_096].map(boundText), ['≤0.25ms', '≤64ms', '≤2048ms', '>2048ms']);
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
