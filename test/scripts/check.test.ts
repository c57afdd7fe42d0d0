import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';

const STEPS = ['node_modules/.bin/tsc', 'node_modules/.bin/biome', 'scripts/docs', 'scripts/test-unit'];

/** Runs it with steps that do nothing, but for one that fails. Gives its end, and the outcomes in its last lines. */
function checkWith(
  t: TestContext,
  failing?: string,
  args: readonly string[] = [],
): { status: number | null; outcomes: string[]; last: string } {
  const folder = mkdtempSync(join(tmpdir(), 'check-'));
  t.after(() => rmSync(folder, { recursive: true }));
  for (const step of [...STEPS, 'scripts/setup']) {
    mkdirSync(dirname(join(folder, step)), { recursive: true });
    writeFileSync(join(folder, step), `#!/bin/sh\nexit ${step === failing ? 3 : 0}\n`, { mode: 0o755 });
  }
  for (const script of ['check', 'steps']) copyFileSync(`scripts/${script}`, join(folder, 'scripts', script));
  const { status, stdout } = spawnSync(join(folder, 'scripts/check'), args, { encoding: 'utf8' });
  const lines = stdout.trim().split('\n');
  return { status, outcomes: lines.flatMap((line) => /^(ok|FAILED) /.exec(line)?.[1] ?? []), last: lines.at(-1)! };
}

describe('scripts/check', () => {
  test('says what ran, and how long it took', (t) => {
    const { status, outcomes, last } = checkWith(t);
    assert.deepEqual([status, ...outcomes], [0, 'ok', 'ok', 'ok', 'ok']);
    assert.match(last, /^check passed in \d+ s$/);
  });

  for (const [index, step] of STEPS.entries()) {
    test(`runs the rest when ${step} fails, and fails`, (t) => {
      const { status, outcomes, last } = checkWith(t, step);
      assert.deepEqual([status, ...outcomes], [1, ...STEPS.map((_, at) => (at === index ? 'FAILED' : 'ok'))]);
      assert.match(last, /^check failed in \d+ s$/);
    });
  }

  test('leaves out the unit tests when asked', (t) => {
    assert.deepEqual(checkWith(t, 'scripts/test-unit', ['--no-tests']).outcomes, ['ok', 'ok', 'ok']);
  });

  test('stops when the machine cannot be set up', (t) => {
    assert.notEqual(checkWith(t, 'scripts/setup').status, 0);
  });
});
