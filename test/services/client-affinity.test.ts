import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClientAffinity } from '../../src/services/client-affinity.ts';
import { endpoint } from './backends.ts';

const A = endpoint(1);
const B = endpoint(2);

test('a client is remembered for less than its time since its last use', () => {
  const affinity = new ClientAffinity(1000, 10);
  affinity.set('c', A, 0);
  assert.equal(affinity.get('c', 999), A);
  assert.equal(affinity.get('c', 1000), undefined);
});

test('each use begins the time anew', () => {
  const affinity = new ClientAffinity(1000, 10);
  affinity.set('c', A, 0);
  affinity.set('c', A, 900);
  assert.equal(affinity.get('c', 1800), A);
});

test('a late write of an early connection does not take time away', () => {
  const affinity = new ClientAffinity(1000, 10);
  affinity.set('c', A, 900);
  affinity.set('c', B, 100);
  assert.equal(affinity.get('c', 1800), B);
});

test('a changed time holds for clients that are known already', () => {
  const affinity = new ClientAffinity(1000, 10);
  affinity.set('c', A, 0);
  affinity.timeoutMs = 5000;
  assert.equal(affinity.get('c', 4999), A);
  affinity.timeoutMs = 100;
  assert.equal(affinity.get('c', 4999), undefined);
});

test('beyond the bound the client that was silent the longest is forgotten', () => {
  const affinity = new ClientAffinity(1000, 3);
  for (const client of ['a', 'b', 'c']) affinity.set(client, A, 0);
  affinity.set('a', A, 1);
  affinity.set('d', A, 2);
  assert.equal(affinity.size, 3);
  assert.deepEqual(
    ['a', 'b', 'c', 'd'].filter((client) => affinity.get(client, 2) !== undefined),
    ['a', 'c', 'd'],
  );
});

test('clients whose time is up leave the memory at the next look-up of anyone', () => {
  const affinity = new ClientAffinity(1000, 10);
  affinity.set('a', A, 0);
  affinity.set('b', A, 10);
  affinity.set('c', A, 500);
  affinity.get('nobody', 1010);
  assert.equal(affinity.size, 1);
  assert.equal(affinity.get('c', 1010), A);
});

test('forgetting a client spares it when it has moved on to another endpoint', () => {
  const affinity = new ClientAffinity(1000, 10);
  affinity.set('c', B, 0);
  affinity.forget('c', A);
  assert.equal(affinity.get('c', 0), B);
  affinity.forget('c', B);
  assert.equal(affinity.get('c', 0), undefined);
  affinity.forget('never seen', A);
});

test('entries may leave from the front, the middle and the end', () => {
  for (const victim of ['a', 'b', 'c']) {
    const affinity = new ClientAffinity(1000, 3);
    for (const client of ['a', 'b', 'c']) affinity.set(client, A, 0);
    affinity.forget(victim, A);
    for (const client of ['d', 'e']) affinity.set(client, A, 1);
    const rest = ['a', 'b', 'c'].filter((client) => client !== victim);
    assert.deepEqual(
      ['a', 'b', 'c', 'd', 'e'].filter((client) => affinity.get(client, 1) !== undefined),
      [rest[1], 'd', 'e'],
    );
  }
});

test('the names of object properties are ordinary clients', () => {
  const affinity = new ClientAffinity(1000, 10);
  assert.equal(affinity.get('__proto__', 0), undefined);
  assert.equal(affinity.get('constructor', 0), undefined);
});
