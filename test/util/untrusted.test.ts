import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Field, FieldError, show } from '../../src/util/untrusted.ts';

function errorOf(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    assert.ok(error instanceof FieldError);
    return error.message;
  }
  return assert.fail('expected an error');
}

test('an error says where the value is, what it is and what was expected', () => {
  const root = Field.root({ a: [{ 'b/c': 'x' }] });
  const field = root.get('a').items()[0]?.get('b/c') ?? assert.fail();
  assert.equal(
    errorOf(() => field.integer(1, 5)),
    'a[0][b/c] is "x"; expected an integer from 1 to 5',
  );
  assert.equal(
    errorOf(() => root.get('a').get('b')),
    'a is a list; expected an object',
  );
  assert.equal(
    errorOf(() => root.get('x').get('y').string()),
    'x.y is missing; expected a string',
  );
});

test('what an object inherits is not in it', () => {
  assert.equal(Field.root({}).get('constructor').isPresent, false);
  assert.equal(Field.root({}).has('toString'), false);
  assert.equal(Field.root(JSON.parse('{"__proto__": 1}')).get('__proto__').value, 1);
});

test('a shown value is one short line', () => {
  assert.equal(show('a\nb\u001b'), '"a\\nb\\u001b"');
  assert.equal(show('x'.repeat(101)), `"${'x'.repeat(100)}"…`);
  assert.equal(show(Number.POSITIVE_INFINITY), 'Infinity');
  assert.equal(show({ a: 1 }), 'an object');
});
