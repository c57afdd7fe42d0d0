import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, before, test } from 'node:test';

let folder: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'run-tests-'));
});
after(() => rmSync(folder, { recursive: true }));

/** Runs a test file of this content. */
function run(name: string, content: string, env: NodeJS.ProcessEnv = {}) {
  const file = join(folder, name);
  writeFileSync(
    file,
    `import { test } from 'node:test';\nimport { existsSync, writeFileSync } from 'node:fs';\n${content}`,
  );
  // This test's own runner must not be asked for results.
  const { NODE_TEST_CONTEXT: _, KUP_TEST_AGAIN: __, ...rest } = process.env;
  const { status } = spawnSync('scripts/run-tests', [file], { env: { ...rest, ...env }, stdio: 'ignore' });
  return { status, file: relative('', file) };
}

const failsOnce = (mark: string) => `test('x', () => {
  if (existsSync('${mark}')) return;
  writeFileSync('${mark}', '');
  throw new Error();
});`;

test('a test that fails once fails the run, but in CI it runs again, and is named', () => {
  assert.equal(run('a.test.ts', failsOnce(join(folder, 'mark'))).status, 1);
  const again = join(folder, 'again');
  const { status, file } = run('b.test.ts', failsOnce(join(folder, 'other-mark')), { KUP_TEST_AGAIN: again });
  assert.deepEqual([status, readFileSync(again, 'utf8')], [0, `  ${file}\n`]);
});

test('a test that stands in a module runs again by the file that was run', () => {
  const again = join(folder, 'of-module');
  writeFileSync(
    join(folder, 'module.ts'),
    `import { test } from 'node:test';\ntest('x', () => Promise.reject(new Error()));`,
  );
  assert.equal(run('d.test.ts', `import './module.ts';`, { KUP_TEST_AGAIN: again }).status, 1);
  assert.ok(!existsSync(again));
});

test('one that fails twice, or cannot be loaded, fails the run in CI, too', () => {
  const again = join(folder, 'none');
  for (const content of [`test('x', () => Promise.reject(new Error()));`, 'process.exit(3);']) {
    assert.equal(run('c.test.ts', content, { KUP_TEST_AGAIN: again }).status, 1);
  }
  assert.ok(!existsSync(again));
});
