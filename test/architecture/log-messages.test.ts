import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const root = join(import.meta.dirname, '../..');

/** A text in a call, as `log.warn('Cannot …'` or `lines.error(name, '…'`, or of a lasting fault. Parts may follow. */
const CALL =
  /(?:\blog\.(?:warn|error)\(|\blines\.(?:warn|error)\([^,()]+,|\bbegun:)\s*(['"`])((?:(?!\1)[^\\]|\\.)*)\1\s*(\+)?/gs;

test('docs/log-messages.md has each warning and error that stands in the sources', () => {
  const page = readFileSync(join(root, 'docs/log-messages.md'), 'utf8');
  const rows = [...page.matchAll(/^\| (.*?) \|/gm)].map(([, message = '']) => message);
  const known = rows.flatMap((row) => row.split(', or ')).map(patternOf);
  const messages = globSync('src/**/*.ts', { cwd: root }).flatMap((file) =>
    [...readFileSync(join(root, file), 'utf8').matchAll(CALL)].map(([, , message = '', more]) => ({
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

/** A row with … for what differs. */
function patternOf(row: string): RegExp {
  return new RegExp(`^${row.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll('…', '.*')}$`);
}
