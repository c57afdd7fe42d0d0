import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, before, test } from 'node:test';

let folder: string;
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'run-tests-'));
  writeFileSync(join(folder, 'forked.cjs'), '');
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
  const { NODE_TEST_CONTEXT: _, KUP_TEST_AGAIN: __, KUP_TEST_TIMES: ___, ...rest } = process.env;
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
  assert.equal(status, 0);
  assert.match(readFileSync(again, 'utf8'), new RegExp(`^${file} \\d{4}-\\d\\d-\\d\\d\n$`));
});

test('one that needs a second try for the third time fails the run in CI, too', () => {
  const list = join(folder, 'list');
  for (const [times, expected] of [0, 0, 1].entries()) {
    const file = relative('', join(folder, `e${times}.test.ts`));
    writeFileSync(list, `# of ${file}\n${`${file} 2026-11-2${times} why\n`.repeat(times)}${file}x 2026-11-20\n`);
    const env = { KUP_TEST_AGAIN: join(folder, 'third'), KUP_TEST_SECOND_TRIES: list };
    assert.equal(run(`e${times}.test.ts`, failsOnce(join(folder, `mark-${times}`)), env).status, expected, `${times}`);
  }
});

test('the list of second tries names files that there are', () => {
  const lines = readFileSync('test/second-tries.txt', 'utf8').trim().split('\n');
  const names = lines.filter((line) => !line.startsWith('#')).map((line) => line.split(' ')[0]);
  const files = new Set(globSync('test/**/*.test.ts'));
  assert.deepEqual(
    names.filter((name) => !files.has(name!)),
    [],
  );
});

test('each file leaves a line of what it took, with the processes that it started', () => {
  const times = join(folder, 'times');
  const busy = 'while (process.cpuUsage().user < 500_000);';
  const { status, file } = run(
    'f.test.ts',
    `import { fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
test('x', async () => {
  spawnSync(process.execPath, ['-e', ${JSON.stringify(busy)}]);
  await once(fork(import.meta.dirname + '/forked.cjs'), 'exit');
});`,
    { KUP_TEST_TIMES: times },
  );
  assert.equal(status, 0);
  const [, cpu, wall, name] = /^([\d.]+) ([\d.]+) (.*)\n$/.exec(readFileSync(times, 'utf8'))!;
  assert.ok(Number(cpu) >= 0.5, `${cpu} s of CPU in ${wall} s`);
  assert.equal(name, file);
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
