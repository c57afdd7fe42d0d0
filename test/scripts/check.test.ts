import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';

const CHECK = new URL('../../scripts/check', import.meta.url);
const STEPS = ['node_modules/.bin/tsc', 'node_modules/.bin/biome', 'scripts/docs', 'scripts/test-unit'];

/** Runs it with steps that do nothing, but for one that fails. Gives its end, and the outcomes in its last lines. */
function checkWith(t: TestContext, failing?: string): { status: number | null; outcomes: string[]; last: string } {
  const folder = mkdtempSync(join(tmpdir(), 'check-'));
  t.after(() => rmSync(folder, { recursive: true }));
  for (const step of [...STEPS, 'scripts/setup']) {
    mkdirSync(dirname(join(folder, step)), { recursive: true });
    writeFileSync(join(folder, step), `#!/bin/sh\nexit ${step === failing ? 3 : 0}\n`, { mode: 0o755 });
  }
  copyFileSync(CHECK, join(folder, 'scripts/check'));
  const { status, stdout } = spawnSync(join(folder, 'scripts/check'), { encoding: 'utf8' });
  const lines = stdout.trim().split('\n');
  return { status, outcomes: lines.slice(-5, -1).map((line) => line.split(' ')[0]!), last: lines.at(-1)! };
}

describe('scripts/check', () => {
  test('says what ran, and how long it took', (t) => {
    const { status, outcomes, last } = checkWith(t);
    assert.deepEqual([status, ...outcomes], [0, 'ok', 'ok', 'ok', 'ok']);
    assert.match(last, /^scripts\/check passed in \d+ s$/);
  });

  for (const [index, step] of STEPS.entries()) {
    test(`runs the rest when ${step} fails, and fails`, (t) => {
      const { status, outcomes, last } = checkWith(t, step);
      assert.deepEqual([status, ...outcomes], [1, ...STEPS.map((_, at) => (at === index ? 'FAILED' : 'ok'))]);
      assert.match(last, /^scripts\/check failed in \d+ s$/);
    });
  }

  test('stops when the machine cannot be set up', (t) => {
    assert.notEqual(checkWith(t, 'scripts/setup').status, 0);
  });
});
