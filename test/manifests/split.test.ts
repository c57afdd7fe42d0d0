import assert from 'node:assert/strict';
import { test } from 'node:test';
import { splitDocuments } from '../../src/manifests/split.ts';

const split = (text: string) => [...splitDocuments(text)].map(({ line, text }) => [line, text]);

test('a file is cut at the document markers, and each piece knows its line', () => {
  assert.deepEqual(split('a: 1\n---\nb: 2\n--- # c\nc: 3'), [
    [1, 'a: 1\n'],
    [2, '---\nb: 2\n'],
    [4, '--- # c\nc: 3'],
  ]);
});

test('what stands before the first marker and is no content belongs to the first document', () => {
  assert.deepEqual(split('# licence\n\n%YAML 1.2\n---\na: 1\n---\nb: 2\n'), [
    [1, '# licence\n\n%YAML 1.2\n---\na: 1\n'],
    [6, '---\nb: 2\n'],
  ]);
});

test('only three dashes by themselves at the start of a line are a marker', () => {
  const text = 'a: "x --- y"\nb: |\n  ---\n---c: 1\n ---\n----\n\u2028---\n';
  assert.deepEqual(split(text), [[1, text]]);
});

test('lines may end as on Windows', () => {
  assert.deepEqual(split('a: 1\r\n---\r\nb: 2\r\n'), [
    [1, 'a: 1\r\n'],
    [2, '---\r\nb: 2\r\n'],
  ]);
});

test('the pieces are the whole text', () => {
  for (const text of ['', '---', '---\n---\n', 'a\n---', '\n---\n\n---\nb']) {
    assert.equal([...splitDocuments(text)].map((chunk) => chunk.text).join(''), text);
  }
});
