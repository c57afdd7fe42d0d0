import assert from 'node:assert/strict';
import { mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { programPath } from '../../src/upgrade/successor-process.ts';

/** A program, and a link that leads to it. */
function installed(t: TestContext) {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'program-')));
  t.after(() => rmSync(folder, { recursive: true }));
  const [file, link] = [join(folder, 'program-1.0'), join(folder, 'program')];
  writeFileSync(file, '');
  symlinkSync(file, link);
  return { file, link };
}

test('the program is where it was called, be that a link', (t) => {
  const { file, link } = installed(t);
  assert.equal(programPath({ argv0: file, execPath: file }), file);
  assert.equal(programPath({ argv0: link, execPath: file }), link);
});

test('a name that leads elsewhere, or nowhere, is not believed', (t) => {
  const { file } = installed(t);
  for (const argv0 of ['program', '/bin/sh', '/nowhere/at/all']) {
    assert.equal(programPath({ argv0, execPath: file }), file);
  }
});

test('a file that has been replaced while the program began is found under its name', (t) => {
  const { file, link } = installed(t);
  const execPath = `${file} (deleted)`;
  assert.equal(programPath({ argv0: file, execPath }), file);
  assert.equal(programPath({ argv0: link, execPath }), link);
  assert.equal(programPath({ argv0: 'program', execPath }), file);
});
