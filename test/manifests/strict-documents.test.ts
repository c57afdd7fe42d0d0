import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { strictDocuments } from '../../src/manifests/strict-documents.ts';

describe('strict documents', () => {
  test('are YAML or JSON, several or none', () => {
    const plain = (text: string) => JSON.parse(JSON.stringify(strictDocuments(text).map(({ value }) => value)));
    assert.deepEqual(plain('a: 1\n---\nb: [2]\n'), [{ a: 1 }, { b: [2] }]);
    assert.deepEqual(plain(' \n{"a": {"b": [true, null, "x"]}}'), [{ a: { b: [true, null, 'x'] } }]);
    assert.deepEqual(plain('{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}\n'), [{ a: 1, b: { c: 2 } }]);
    assert.deepEqual(plain(''), []);
  });

  test('have no key twice, and the line of it is told', () => {
    for (const text of ['a: 1\na: 2\n', '{"a": 1,\n"a": 2}', '{"x": {"a": 1,\n"a": 2}}']) {
      assert.throws(() => strictDocuments(text), { line: 2, message: 'the key "a" is there twice' }, text);
    }
  });

  test('that are none are refused with the line', () => {
    assert.throws(() => strictDocuments('a: 1\nb: "\n'), { line: 3 });
    assert.throws(() => strictDocuments('{"a": '), { line: 1 });
  });

  test('know the line of each field, JSON too', () => {
    const [document] = strictDocuments('\n{\n "a": {"b":\n [1,\n 2]}}');
    const lines = [[], ['a'], ['a', 'b'], ['a', 'b', '1'], ['a', 'c'], ['x', 'b']].map((path) =>
      document?.lineOf(path),
    );
    assert.deepEqual(lines, [2, 3, 3, 5, 3, 2]);
  });
});
