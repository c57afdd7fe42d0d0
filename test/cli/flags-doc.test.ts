import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { flagTables } from './flags-doc.ts';

test('docs/flags.md shows every setting', () => {
  const document = readFileSync(new URL('../../docs/flags.md', import.meta.url), 'utf8');
  const tables = flagTables();
  assert.ok(document.includes(tables), `end docs/flags.md with\n${tables}`);
});
