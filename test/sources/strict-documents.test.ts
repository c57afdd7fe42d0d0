import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { strictDocuments } from '../../src/sources/strict-documents.ts';

describe('strict documents', () => {
  test('are YAML or JSON, several or none', () => {
    const plain = (text: string) => JSON.parse(JSON.stringify(strictDocuments(text)));
    assert.deepEqual(plain('a: 1\n---\nb: [2]\n'), [{ a: 1 }, { b: [2] }]);
    assert.deepEqual(plain(' \n{"a": {"b": [true, null, "x"]}}'), [{ a: { b: [true, null, 'x'] } }]);
    assert.deepEqual(plain('{\n\t"a": 1,\n\t"b": {\n\t\t"c": 2\n\t}\n}\n'), [{ a: 1, b: { c: 2 } }]);
    assert.deepEqual(plain(''), []);
  });

  test('have no key twice, and the line of it is told', () => {
    for (const text of ['a: 1\na: 2\n', '{"a": 1,\n"a": 2}', '{"x": {"a": 1,\n"a": 2}}']) {
      assert.throws(() => strictDocuments(text), /^Error: line 2: the key "a" is there twice$/, text);
    }
  });

  test('that are none are refused with the line', () => {
    assert.throws(() => strictDocuments('a: 1\nb: "\n'), /^Error: line \d: /);
    assert.throws(() => strictDocuments('{"a": '), /^Error: line 1: /);
  });
});
