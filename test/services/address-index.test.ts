import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AddressIndex } from '../../src/services/address-index.ts';
import { address } from '../rules/fixtures.ts';

test('every mention is found until it is taken back, however many there are', () => {
  const [a, b] = [address('10.0.0.1'), address('10.0.0.2')];
  const [one, two, three] = [{ n: 1 }, { n: 2 }, { n: 3 }];
  const index = new AddressIndex<{ n: number }>();
  const at = (where: typeof a) => [...index.of(where)].map(({ n }) => n).sort();
  assert.deepEqual(at(a), []);
  index.add(a, one);
  index.add(a, one);
  assert.deepEqual([at(a), at(b)], [[1], []]);
  index.delete(a, two);
  assert.deepEqual(at(a), [1]);
  for (const mention of [two, three, two]) index.add(a, mention);
  index.add(b, three);
  assert.deepEqual([at(a), at(b)], [[1, 2, 3], [3]]);
  index.delete(a, one);
  index.delete(a, three);
  assert.deepEqual([at(a), at(b)], [[2], [3]]);
  index.delete(a, two);
  index.delete(b, three);
  assert.deepEqual([at(a), at(b)], [[], []]);
});
