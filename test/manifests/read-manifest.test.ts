import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Reading, readManifest, split } from '../../src/manifests/read-manifest.ts';

const PLAIN = { clusterIpFamilies: [], loopbackEndpoints: false };

function read(text: string): Reading {
  const reader = readManifest(text, new Map(), PLAIN);
  for (;;) {
    const step = reader.next();
    if (step.done) return step.value;
  }
}

/** The pieces of a file that were parsed by themselves, with the line of the document in each. */
function pieces(text: string): [number, string][] {
  const reading = read(text);
  if (reading.status !== 'read') return assert.fail(reading.err);
  const lines = reading.documents.map(({ line }) => line);
  return [...split(text)].map(({ piece }, index) => [lines[index] ?? 0, piece]);
}

test('a file is cut at the document markers, and each document knows its line', () => {
  assert.deepEqual(pieces('a: 1\n---\nb: 2\n--- # c\nc: 3'), [
    [1, 'a: 1\n'],
    [3, '---\nb: 2\n'],
    [5, '--- # c\nc: 3'],
  ]);
  // Lines may end as on Windows.
  assert.deepEqual(pieces('a: 1\r\n---\r\nb: 2\r\n'), [
    [1, 'a: 1\r\n'],
    [3, '---\r\nb: 2\r\n'],
  ]);
});

test('what stands before the first marker and is no content belongs to the first document', () => {
  assert.deepEqual(pieces('# licence\n\n%YAML 1.2\n---\na: 1\n---\nb: 2\n'), [
    [5, '# licence\n\n%YAML 1.2\n---\na: 1\n'],
    [7, '---\nb: 2\n'],
  ]);
});

test('only three dashes by themselves at the start of a line are a marker', () => {
  const text = 'a: "x --- y"\nb: |\n  ---\n---c: 1\n----: 2\n';
  assert.deepEqual(pieces(text), [[1, text]]);
});

test('documents are numbered from 1 and know their lines in the file; empty ones do not count', () => {
  const reading = read('# c\n---\n---\nkind: A\n---\n# none\n---\n\nkind: B\n...\nkind: C\n');
  assert.deepEqual(reading.status === 'read' && reading.documents.map(({ document, line }) => [document, line]), [
    [1, 4],
    [2, 9],
    [3, 11],
  ]);
});

test('a mistake is reported with the number of its document and its line in the file', () => {
  const reading = read('kind: A\n---\nkind: B\n---\na: 1\na: 2\n');
  assert.deepEqual(reading, { status: 'unusable', err: 'a key is there twice', document: 3, line: 6 });
});
