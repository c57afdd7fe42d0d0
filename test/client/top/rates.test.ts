import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { NO_RATES, RateMeter, type Rates } from '../../../src/client/top/rates.ts';
import type { Counters } from '../../../src/contracts/data-plane.ts';
import { counters } from '../../fakes/fake-view.ts';

function counted(changes: Partial<Counters>): Counters {
  return { ...counters(0), connections: 100, ...changes };
}

/** One look at all of these. */
function look(meter: RateMeter, atMs: number, all: Readonly<Record<string, Partial<Counters>>>): Record<string, Rates> {
  const found = Object.entries(all).map(([key, changes]) => [key, meter.rates(key, counted(changes), atMs)]);
  meter.done();
  return Object.fromEntries(found);
}

describe('rates', () => {
  test('are the differences between two looks, per second', () => {
    const meter = new RateMeter();
    assert.deepEqual(look(meter, 10_000, { a: {} }), { a: NO_RATES });
    const now = {
      connections: 130,
      receivedBytes: 4_000,
      sentBytes: 8_000,
      retries: 2,
      failedTimeout: 3,
      noEndpoints: 1,
    };
    assert.deepEqual(look(meter, 12_000, { a: now }), {
      a: { connections: 15, receivedBytes: 2_000, sentBytes: 4_000, retries: 1, failures: 2 },
    });
    assert.deepEqual(look(meter, 13_000, { a: now }), { a: NO_RATES });
  });

  test('are none for what is new, or has begun again', () => {
    const meter = new RateMeter();
    look(meter, 0, { a: {} });
    assert.deepEqual(look(meter, 1_000, { a: { connections: 99, sentBytes: 5 }, b: {} }), { a: NO_RATES, b: NO_RATES });
  });

  test('are never below none, though counters are read while they move', () => {
    const meter = new RateMeter();
    look(meter, 0, { a: { sentBytes: 10 } });
    assert.equal(look(meter, 1_000, { a: { sentBytes: 9 } })['a']?.sentBytes, 0);
  });

  test('keep nothing of what is gone', () => {
    const meter = new RateMeter();
    look(meter, 0, { a: {} });
    look(meter, 1_000, {});
    assert.deepEqual(look(meter, 2_000, { a: { connections: 500 } }), { a: NO_RATES });
  });

  test('are those since the last complete look', () => {
    const meter = new RateMeter();
    look(meter, 0, { a: {} });
    meter.rates('a', counted({ connections: 101 }), 1_000);
    assert.equal(look(meter, 2_000, { a: { connections: 104 } })['a']?.connections, 2);
  });
});
