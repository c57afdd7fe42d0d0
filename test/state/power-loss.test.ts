import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bodyOf, type Head } from '../../src/state/format.ts';
import { StateFile } from '../../src/state/state-file.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { finished } from '../../src/util/wait.ts';
import { MemoryFiles, PowerLoss } from '../fakes/memory-files.ts';

const HEAD: Head = { node: 'node-1', source: 'kubernetes', bootId: 'boot', program: '1.0.0', writtenAt: 1 };

/** So long that it takes several writes, and that a part of it can be missing. */
const objects = (generation: string) =>
  Array.from({ length: 3_000 }, (_, index) => ({ object: { generation, index, filler: 'x'.repeat(40) } }));

const stateFile = (files: MemoryFiles) => new StateFile({ directory: '/state', files, clock: systemClock });

const write = async (files: MemoryFiles, generation: string) =>
  await stateFile(files).write(HEAD, await finished(systemClock, bodyOf(objects(generation))));

/** Which state is read, whole. */
async function generationIn(files: MemoryFiles): Promise<string | undefined> {
  const saved = await stateFile(files).read(HEAD, 0);
  if (saved === undefined) return undefined;
  const found = [...saved.objects].map(({ object }) => object as { generation: string });
  assert.equal(found.length, 3_000);
  assert.equal(new Set(found.map(({ generation }) => generation)).size, 1);
  return found[0]?.generation;
}

/** Where there is `old` already, or nothing. */
async function loseAtEachStep(old: string | undefined): Promise<ReadonlySet<string | undefined>> {
  const begin = async () => {
    const files = new MemoryFiles();
    if (old !== undefined) await write(files, old);
    return files;
  };
  const whole = await begin();
  const before = whole.calls;
  await write(whole, 'new');
  const found = new Set<string | undefined>();
  for (let step = before; step <= whole.calls; step++) {
    const files = await begin();
    files.callsLeft = step;
    if (step < whole.calls) await assert.rejects(write(files, 'new'), PowerLoss);
    else await write(files, 'new');
    for (const left of files.afterLoss()) {
      const generation = await generationIn(left);
      assert.ok(generation === old || generation === 'new', `${generation} after a loss of power at step ${step}`);
      found.add(generation);
      // What the loss has left is in nobody's way.
      await write(left, 'next');
      assert.equal(await generationIn(left), 'next');
    }
    if (step === whole.calls) for (const left of files.afterLoss()) assert.equal(await generationIn(left), 'new');
  }
  return found;
}

test('after a loss of power at any step of a write, the old state or the new one is read, and never another', async () => {
  assert.deepEqual(await loseAtEachStep('old'), new Set(['old', 'new']));
});

test('after a loss of power at any step of the first write there is a whole state or none', async () => {
  assert.deepEqual(await loseAtEachStep(undefined), new Set([undefined, 'new']));
});
