import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Departures } from '../../src/services/departures.ts';
import { Pool } from '../../src/services/pool.ts';
import { endpointAt } from '../compliance/data-plane/harness.ts';
import { create, NO_SHUFFLE } from './backends.ts';

const [A, B] = [endpointAt('10.0.0.1', 80), endpointAt('10.0.0.2', 80)] as const;

/** Departures from the pool of one listener. */
function listener() {
  const pool = new Pool({ random: NO_SHUFFLE, create, onLoad: () => {} });
  const departures = new Departures();
  const update = (lists: Parameters<typeof pool.update>[0]) => departures.update(pool.update(lists, 0));
  return { departures, update };
}

test('an endpoint departs once, when it is in neither list', () => {
  const { departures, update } = listener();
  assert.equal(update({ endpoints: [A, B] }), undefined);
  assert.equal(update({ endpoints: [A], draining: [B] }), undefined);
  const departure = update({ endpoints: [A] });
  assert.deepEqual([...(departure ?? [])], ['10.0.0.2:80']);
  assert.equal(update({ endpoints: [A] }), undefined);
  assert.deepEqual([...departures.end(departure ?? new Set())], ['10.0.0.2:80']);
  assert.deepEqual([...departures.end(departure ?? new Set())], []);
});

test('an endpoint that comes back has not departed', () => {
  const { departures, update } = listener();
  update({ endpoints: [A] });
  const departure = update({ endpoints: [] });
  update({ endpoints: [{ ...A }] });
  assert.equal(departures.end(departure ?? new Set()).size, 0);
});

test('an endpoint that comes back and is removed again has another departure', () => {
  const { departures, update } = listener();
  update({ endpoints: [A] });
  const first = update({ endpoints: [] });
  update({ endpoints: [], draining: [{ ...A }] });
  const second = update({ endpoints: [] });
  assert.ok(first && second);
  assert.equal(departures.end(first).size, 0);
  assert.equal(departures.end(second).size, 1);
});

test('a connection to a departed endpoint begins a departure, unless one is under way', () => {
  const { departures, update } = listener();
  update({ endpoints: [A] });
  const departure = update({ endpoints: [] });
  assert.equal(departures.connected('10.0.0.1:80'), undefined);
  departures.end(departure ?? new Set());
  const late = departures.connected('10.0.0.1:80');
  assert.equal(departures.end(late ?? new Set()).size, 1);
});
