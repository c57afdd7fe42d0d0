import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bundle } from '../../scripts/build.ts';

test('the script that the helper process runs too is small: what it imports by mistake fills its memory', async () => {
  const { scripts } = await bundle();
  const size = (name: 'main.js' | 'program.js') => scripts.get(name)?.length ?? 0;
  assert.ok(size('main.js') > 1_000 && size('main.js') < 20_000, `main.js has ${size('main.js')} characters`);
  assert.ok(size('program.js') > 1_000_000, `program.js has ${size('program.js')} characters`);
});

test('no script has a character that would double the memory of all others', async () => {
  const { scripts } = await bundle();
  for (const [name, text] of scripts) assert.doesNotMatch(text, /[^\0-\x7f]/, name);
});
