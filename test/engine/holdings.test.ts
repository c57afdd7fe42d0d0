import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Holding, Holdings } from '../../src/engine/holdings.ts';

test('all Service ports and workers of a namespace count together, until a worker dies', () => {
  const holdings = new Holdings(2);
  const [one, two] = [holdings.join('a'), holdings.join('a')];
  new Holding(one, 0).add(2);
  new Holding(two, 1).add(4);
  assert.equal(new Holding(one, 0).total, 6);
  assert.equal(new Holding(holdings.join('b'), 0).total, 0);
  new Holding(one, 1).add(3, 'flows');
  new Holding(two, 0).add(5, 'flows');
  assert.equal(new Holding(one, 0).flows, 8);
  new Holding(one, 1).add(100, 'keptBytes');
  assert.equal(new Holding(two, 0).keptBytes, 0, 'each worker has its own');
  assert.equal(new Holding(two, 1).keptBytes, 100);
  new Holding(one, 1).add(7, 'stalledBytes');
  assert.deepEqual([new Holding(two, 0).stalledBytes, new Holding(two, 1).stalledBytes], [0, 7]);
  holdings.clear(1);
  const left = new Holding(two, 0);
  assert.deepEqual(
    [left.total, left.flows, new Holding(two, 1).keptBytes, new Holding(two, 1).stalledBytes],
    [2, 5, 0, 0],
  );
});

test('a namespace is forgotten when it has neither a Service port nor a connection', () => {
  const holdings = new Holdings(1);
  const first = holdings.join('a');
  const held = new Holding(first, 0);
  held.add(2);
  holdings.leave('a');
  holdings.join('b');
  assert.equal(holdings.join('a'), first, 'its connections are still open');
  held.add(-2);
  assert.equal(holdings.join('a'), first);
  holdings.leave('a');
  holdings.join('c');
  assert.equal(holdings.join('a'), first, 'it has a Service port');
  for (let i = 0; i < 2; i++) holdings.leave('a');
  holdings.join('d');
  assert.notEqual(holdings.join('a'), first);
});
