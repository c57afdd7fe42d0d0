import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { readManifest } from '../../src/manifests/read-manifest.ts';
import { seededRandom } from '../support/seeded-random.ts';

const GOLDEN = readFileSync(new URL('../golden/services.yaml', import.meta.url), 'utf8');

const read = async (text: string) =>
  (await readManifest({ text, hash: '' }, { known: new Map(), breathe: () => Promise.resolve() })).reading;

test('documents are numbered from 1 and know their lines in the file; empty ones do not count', async () => {
  const reading = await read('# c\n---\n---\nkind: A\n---\n# none\n---\n\nkind: B\n...\nkind: C\n');
  assert.deepEqual(reading.status === 'read' && reading.documents.map(({ line }) => line), [4, 9, 11]);
});

test('a mistake is told with the number of its document and its line in the file', async () => {
  assert.deepEqual(
    await readManifest(
      { text: 'kind: A\n---\nkind: B\n---\na: 1\na: 2\n', hash: 'h' },
      { known: new Map(), breathe: async () => {} },
    ).then(({ reading }) => reading),
    {
      status: 'unusable',
      err: 'the key "a" is there twice',
      content: 'h',
      document: 3,
      line: 6,
    },
  );
});

test('after a mistake the documents known before are known still', async () => {
  const known = new Map();
  const result = await readManifest({ text: 'a: [', hash: '' }, { known, breathe: async () => {} });
  assert.equal(result.known, known);
});

test('whatever a file is damaged by, reading it answers', async () => {
  const random = seededRandom(7);
  const below = (n: number) => Math.floor(random() * n);
  const pieces = [
    '{',
    '[',
    '- ',
    ': ',
    '&a ',
    '*a ',
    '<<: ',
    '"',
    "'",
    '|',
    '\n---\n',
    '\n...\n',
    '\t',
    '\u0000',
    '!!x ',
    '%YAML 9\n',
    '? ',
    '@',
    '9'.repeat(400),
  ];
  const outcomes = { read: 0, unusable: 0 };
  for (let round = 0; round < 200; round += 1) {
    let text = GOLDEN;
    for (let count = 1 + below(3); count > 0; count -= 1) {
      const at = below(text.length);
      const piece = below(2) === 0 ? pieces[below(pieces.length)] : text.slice(below(text.length)).slice(0, below(80));
      text = text.slice(0, at) + piece + text.slice(at + below(40));
    }
    outcomes[(await read(text)).status] += 1;
  }
  assert.ok(outcomes.read > 0 && outcomes.unusable > 0, JSON.stringify(outcomes));
});
