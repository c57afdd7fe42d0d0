import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { DISK } from '../../src/state/disk.ts';
import { generationIn, writeGeneration } from '../support/state-generations.ts';

const WRITER = fileURLToPath(new URL('../support/killed-writer.ts', import.meta.url));

test('after kill -9 at any step of a write to a real disk, the old state or the new one is read, and never another', async (context) => {
  const directory = mkdtempSync(join(tmpdir(), 'kill-'));
  context.after(() => rmSync(directory, { recursive: true }));
  const read: (string | undefined)[] = [];
  for (let steps = 0; ; steps++) {
    await writeGeneration(DISK, directory, 'old');
    const writer = fork(WRITER, [directory, 'new', String(steps)]);
    const [code, signal] = await once(writer, 'exit');
    const generation = await generationIn(DISK, directory);
    if (code === 0) {
      assert.equal(generation, 'new');
      break;
    }
    assert.equal(signal, 'SIGKILL');
    read.push(generation);
  }
  // It is the rename that makes it the new one, and the next state was written over whatever each kill had left.
  const renamed = read.indexOf('new');
  assert.ok(renamed > 5, read.join());
  assert.deepEqual(new Set(read.slice(0, renamed)), new Set(['old']));
  assert.deepEqual(new Set(read.slice(renamed)), new Set(['new']));
});
