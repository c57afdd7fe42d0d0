import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClientAffinity } from '../../src/services/client-affinity.ts';
import { endpoint, remembering } from './backends.ts';

const A = endpoint(1);
const B = endpoint(2);

test('a late write of an earlier connection does not shorten the time', () => {
  const affinity = new ClientAffinity(1000, remembering(10));
  affinity.set('c', A, 900);
  affinity.set('c', B, 100);
  assert.equal(affinity.get('c', 1800), B);
});

test('expired clients are deleted at the next look-up of any client', () => {
  const affinity = new ClientAffinity(1000, remembering(10));
  affinity.set('a', A, 0);
  affinity.set('b', A, 10);
  affinity.set('c', A, 500);
  affinity.get('nobody', 1010);
  assert.equal(affinity.size, 1);
  assert.equal(affinity.get('c', 1010), A);
});

test('entries can be deleted at the front, in the middle and at the end', () => {
  for (const victim of ['a', 'b', 'c']) {
    const affinity = new ClientAffinity(1000, remembering(3));
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
  const affinity = new ClientAffinity(1000, remembering(10));
  assert.equal(affinity.get('__proto__', 0), undefined);
  assert.equal(affinity.get('constructor', 0), undefined);
});
