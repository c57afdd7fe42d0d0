import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryFiles, PowerLoss } from '../fakes/memory-files.ts';
import { generationIn, writeGeneration } from '../support/state-generations.ts';

const DIRECTORY = '/state';

/** Where there is `old` already, or nothing. */
async function loseAtEachStep(old: string | undefined): Promise<ReadonlySet<string | undefined>> {
  const begin = async () => {
    const files = new MemoryFiles();
    if (old !== undefined) await writeGeneration(files, DIRECTORY, old);
    return files;
  };
  const whole = await begin();
  const before = whole.calls;
  await writeGeneration(whole, DIRECTORY, 'new');
  const found = new Set<string | undefined>();
  for (let step = before; step <= whole.calls; step++) {
    const files = await begin();
    files.callsLeft = step;
    if (step < whole.calls) await assert.rejects(writeGeneration(files, DIRECTORY, 'new'), PowerLoss);
    else await writeGeneration(files, DIRECTORY, 'new');
    for (const left of files.afterLoss()) {
      const generation = await generationIn(left, DIRECTORY);
      assert.ok(generation === old || generation === 'new', `${generation} after a loss of power at step ${step}`);
      found.add(generation);
      // What the loss has left is in nobody's way.
      await writeGeneration(left, DIRECTORY, 'next');
      assert.equal(await generationIn(left, DIRECTORY), 'next');
    }
    if (step === whole.calls)
      for (const left of files.afterLoss()) assert.equal(await generationIn(left, DIRECTORY), 'new');
  }
  return found;
}

test('after a loss of power at any step of a write, the old state or the new one is read, and never another', async () => {
  assert.deepEqual(await loseAtEachStep('old'), new Set(['old', 'new']));
});

test('after a loss of power at any step of the first write there is a whole state or none', async () => {
  assert.deepEqual(await loseAtEachStep(undefined), new Set([undefined, 'new']));
});
