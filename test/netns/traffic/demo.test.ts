import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { output } from '../topology.ts';
import { waitFor } from '../wait.ts';

const DEMO = fileURLToPath(new URL('../../../scripts/demo', import.meta.url));

interface Run {
  readonly code: number | null;
  readonly text: string;
  readonly left: readonly string[];
}

/** Runs the demo from another directory, and interrupts it once it has said `interruptAt`. */
async function runDemo(options: { env?: NodeJS.ProcessEnv; interruptAt?: string } = {}): Promise<Run> {
  const mark = `KUP_TEST_DEMO=${process.pid}-${performance.now()}`;
  const [key, value] = mark.split('=') as [string, string];
  const child = spawn(DEMO, { cwd: tmpdir(), env: { ...process.env, ...options.env, [key]: value } });
  let text = '';
  let isInterrupted = false;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      if (isInterrupted || options.interruptAt === undefined || !text.includes(options.interruptAt)) return;
      isInterrupted = true;
      child.kill('SIGINT');
    });
  }
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  // The shell becomes the demo, so its process id is in the names of what it creates.
  const leftOver = async () => {
    const namespaces = (await output(['ip', 'netns', 'list'])).split('\n');
    const named = [...namespaces, ...readdirSync(tmpdir())].filter((name) => name.startsWith(`kup-${child.pid}-`));
    return [...named, ...processesWith(mark)];
  };
  // What it has killed may take a moment to be gone.
  await waitFor('nothing to be left', async () => (await leftOver()).length === 0).catch(() => {});
  return { code, text, left: await leftOver() };
}

/** Processes that have inherited this from the environment of one that was started here. */
function processesWith(variable: string): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(variable);
      } catch {
        return false; // It has ended.
      }
    })
    .map((pid) => `process ${pid}`);
}

test('the demo shows everything, exits with 0 and leaves nothing behind', { timeout: 600_000 }, async () => {
  const { code, text, left } = await runDemo();
  assert.equal(code, 0, text);
  for (const part of ['pod-1          10  ##########', '30 of 30 requests answered', 'KUBE-PORTALS-HOST', 'Done.']) {
    assert.ok(text.includes(part), text);
  }
  assert.ok(!text.includes('\x1b'), 'no colours where there is no terminal');
  assert.deepEqual(left, []);
});

test('an interrupted demo leaves nothing behind', { timeout: 600_000 }, async () => {
  const { code, left } = await runDemo({ interruptAt: 'Lose a backend' });
  assert.equal(code, 130);
  assert.deepEqual(left, []);
});

test('a demo that fails says why, exits with 1 and leaves nothing behind', { timeout: 600_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'demo-'));
  try {
    writeFileSync(join(folder, 'curl'), '#!/bin/sh\necho "curl: broken for a test" >&2\nexit 7\n');
    chmodSync(join(folder, 'curl'), 0o755);
    const { code, text, left } = await runDemo({ env: { PATH: `${folder}:${process.env['PATH']}` } });
    assert.equal(code, 1);
    assert.match(text, /\ndemo: failed, because .*\n$/s);
    assert.deepEqual(left, []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
