import assert from 'node:assert/strict';
import { test } from 'node:test';
import { knownPieces, NO_FILE, nextFileState } from '../../src/manifests/file-state.ts';
import { type KnownPieces, type Reading, readManifest, split } from '../../src/manifests/read-manifest.ts';

const PLAIN = { clusterIpFamilies: [], loopbackEndpoints: false };

function read(text: string, known: KnownPieces = new Map()): Reading {
  const reader = readManifest(text, known, PLAIN);
  for (;;) {
    const step = reader.next();
    if (step.done) return step.value;
  }
}

/** The pieces of a file that were parsed by themselves, with the line of the document in each. */
function pieces(text: string): [number, string][] {
  const reading = read(text);
  if (reading.status !== 'read') return assert.fail(reading.err.found);
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
  assert.deepEqual(reading, { status: 'unusable', err: { found: 'a key is there twice' }, document: 3, line: 6 });
});

const service = (name: string, port = 80, more = '') =>
  `apiVersion: v1\nkind: Service\nmetadata: {name: ${name}}\nspec: {clusterIP: 10.96.0.1, ports: [{port: ${port}}]${more}}\n`;

/** How many objects of the file are decoded when it is read again. The result is as if all of them were. */
function decodedAgain(before: string, after: string): number {
  const { state } = nextFileState('f.yaml', NO_FILE, read(before));
  const known = knownPieces(state);
  const reading = read(after, known);
  assert.deepEqual(reading, read(after));
  if (reading.status !== 'read') return assert.fail(reading.err.found);
  const kept = new Set<unknown>([...known.values()].map(({ object }) => object));
  return reading.documents
    .flatMap(({ objects }) => objects)
    .filter((object) => object.status !== 'known' || object.decoded.status !== 'ok' || !kept.has(object.decoded.value))
    .length;
}

test('a change of one Service among a thousand decodes one object', () => {
  const services = Array.from({ length: 1_000 }, (_, index) => service(`s-${index}`));
  const before = services.join('---\n');
  assert.equal(decodedAgain(before, before), 0);
  assert.equal(decodedAgain(before, services.with(500, service('s-500', 81)).join('---\n')), 1);
  assert.equal(decodedAgain(before, [...services, service('new')].join('---\n')), 1);
  // What follows has other numbers and lines.
  assert.equal(decodedAgain(before, services.toSpliced(1, 1, `# moved\n\n${service('s-1')}`).join('---\n')), 1);
  assert.equal(decodedAgain(before, services.toSpliced(1, 1).join('---\n')), 0);
});

test('what has faults, and lists, are decoded again each time', () => {
  const list =
    '---\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: l}, spec: {ports: [{port: 1}]}}\n';
  const faulty = [service('a', 0), service('b', 80, ', unknown: 1'), list, 'kind: Service\n'];
  const file = (...more: string[]) => [...faulty, ...more].join('---\n');
  assert.equal(decodedAgain(file(service('c')), file(service('c'), service('d'))), faulty.length + 1);
  // Of two with one name the first counts, known or not.
  assert.equal(decodedAgain(file(service('c')), file(service('c'), service('c'))), faulty.length);
});
