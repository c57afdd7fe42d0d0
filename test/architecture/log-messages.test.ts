import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const root = join(import.meta.dirname, '../..');

/** A text in a call, as `log.warn('Cannot …'` or `lines.error(name, '…'`, or of a lasting fault. Parts may follow. */
const CALL =
  /(?:\blog\.(?:warn|error)\(|\blines\.(?:warn|error)\([^,()]+,|\bbegun:)\s*(['"`])((?:(?!\1)[^\\]|\\.)*)\1\s*(\+)?/gs;

const page = readFileSync(join(root, 'docs/log-messages.md'), 'utf8');
const rows = [...page.matchAll(/^\| (?!message \||---)(.*?) \|/gm)].flatMap(([, row = '']) => row.split(', or '));
const sources = globSync('src/**/*.ts', { cwd: root }).map((file) => ({
  file,
  text: readFileSync(join(root, file), 'utf8'),
}));

test('docs/log-messages.md has each warning and error that stands in the sources', () => {
  const known = rows.map(patternOf);
  const messages = sources.flatMap(({ file, text }) =>
    [...text.matchAll(CALL)].map(([, , message = '', more]) => ({
      file,
      message: message.replaceAll(/\$\{[^}]*\}/g, '…'),
      isWhole: more === undefined,
    })),
  );
  assert.ok(messages.length > 40, `${messages.length} messages`);
  const missing = messages.filter(
    ({ message, isWhole }) => !known.some((row) => row.test(message)) && (isWhole || !page.includes(`| ${message}`)),
  );
  assert.deepEqual(missing, []);
});

test('and no other: each part of its messages stands in the sources', () => {
  // A long text is cut into several literals.
  const all = sources.map(({ text }) => text.replaceAll(/['`] \+\s+['`]/g, '')).join('\n');
  const isThere = (row: string) => row.split('…').every((part) => all.includes(part.trim()));
  assert.ok(rows.length > 50, `${rows.length} messages`);
  assert.deepEqual(
    rows.filter((row) => !isThere(row)),
    [],
  );
});

/** A row with … for what differs. */
function patternOf(row: string): RegExp {
  return new RegExp(`^${row.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll('…', '.*')}$`);
}
