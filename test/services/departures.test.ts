import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Departures } from '../../src/services/departures.ts';
import { endpointAt } from '../compliance/data-plane/harness.ts';

const [A, B] = [endpointAt('10.0.0.1', 80), endpointAt('10.0.0.2', 80)] as const;

test('an endpoint departs once, when it is in neither list', () => {
  const departures = new Departures();
  assert.equal(departures.update({ endpoints: [A, B] }), undefined);
  assert.equal(departures.update({ endpoints: [A], draining: [B] }), undefined);
  const departure = departures.update({ endpoints: [A] });
  assert.deepEqual([...(departure ?? [])], ['10.0.0.2:80']);
  assert.equal(departures.update({ endpoints: [A] }), undefined);
  assert.deepEqual([...departures.end(departure ?? new Set())], ['10.0.0.2:80']);
  assert.deepEqual([...departures.end(departure ?? new Set())], []);
});

test('an endpoint that comes back has not departed', () => {
  const departures = new Departures();
  departures.update({ endpoints: [A] });
  const departure = departures.update({ endpoints: [] });
  departures.update({ endpoints: [{ ...A }] });
  assert.equal(departures.end(departure ?? new Set()).size, 0);
});

test('an endpoint that comes back and is removed again has another departure', () => {
  const departures = new Departures();
  departures.update({ endpoints: [A] });
  const first = departures.update({ endpoints: [] });
  departures.update({ endpoints: [], draining: [{ ...A }] });
  const second = departures.update({ endpoints: [] });
  assert.ok(first && second);
  assert.equal(departures.end(first).size, 0);
  assert.equal(departures.end(second).size, 1);
});

test('a connection to a departed endpoint begins a departure, unless one is under way', () => {
  const departures = new Departures();
  departures.update({ endpoints: [A] });
  assert.equal(departures.connected('10.0.0.1:80'), undefined);
  const departure = departures.update({ endpoints: [] });
  assert.equal(departures.connected('10.0.0.1:80'), undefined);
  departures.end(departure ?? new Set());
  const late = departures.connected('10.0.0.1:80');
  assert.equal(departures.end(late ?? new Set()).size, 1);
});
