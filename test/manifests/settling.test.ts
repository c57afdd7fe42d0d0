import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ABSENT, Settling } from '../../src/manifests/settling.ts';

const look = (id: string, size = 10) => ({ id, size });

test('a new file may be read once it has looked the same for 50 ms', () => {
  const settling = new Settling();
  assert.equal(settling.wait('f', look('a'), 0), 50);
  assert.equal(settling.wait('f', look('a'), 49), 1);
  assert.equal(settling.wait('f', look('a'), 50), 0);
});

test('every change begins the wait anew', () => {
  const settling = new Settling();
  settling.wait('f', look('a'), 0);
  assert.equal(settling.wait('f', look('b'), 40), 50);
  assert.equal(settling.wait('f', look('b'), 89), 1);
});

test('an accepted file has nothing to wait for until it changes', () => {
  const settling = new Settling();
  settling.wait('f', look('a'), 0);
  settling.accept('f', look('a'));
  assert.equal(settling.wait('f', look('a'), 60), undefined);
  assert.equal(settling.wait('f', look('b', 10), 70), 50);
});

test('what takes away waits longer: smaller, gone, empty', () => {
  const settling = new Settling();
  settling.accept('f', look('a', 10));
  assert.equal(settling.wait('f', look('b', 9), 0), 200);
  assert.equal(settling.wait('f', ABSENT, 0), 200);
  assert.equal(settling.wait('f', look('c', 0), 0), 400);
  assert.equal(settling.wait('f', look('d', 11), 300), 50, 'and is forgiven when it has grown again');
});

test('a file that came back as it was has never changed', () => {
  const settling = new Settling();
  settling.accept('f', look('a'));
  settling.wait('f', ABSENT, 0);
  assert.equal(settling.wait('f', look('a'), 100), undefined);
  assert.equal(settling.wait('f', ABSENT, 150), 200);
});

test('a file that never comes to rest is known by how long that has been so', () => {
  const settling = new Settling();
  for (let at = 0; at <= 1000; at += 40) settling.wait('f', look(String(at)), at);
  assert.equal(settling.restlessMs('f', 1000), 1000);
  settling.accept('f', look('1000'));
  assert.equal(settling.restlessMs('f', 1000), 0);
});
