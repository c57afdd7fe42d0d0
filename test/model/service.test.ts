import assert from 'node:assert/strict';
import { test } from 'node:test';
import { partsOf } from '../../src/model/service.ts';

test('names are told apart into namespace, Service and port', () => {
  assert.deepEqual(partsOf('a/b'), { namespace: 'a', service: 'b', portName: '' });
  assert.deepEqual(partsOf('a/b:c'), { namespace: 'a', service: 'b', portName: 'c' });
});
