import assert from 'node:assert/strict';
import type { Files } from '../../src/state/files.ts';
import { bodyOf, type Head } from '../../src/state/format.ts';
import { StateFile } from '../../src/state/state-file.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { finished } from '../../src/util/wait.ts';

const HEAD: Head = { node: 'node-1', source: 'kubernetes', bootId: 'boot', program: '1.0.0', writtenAt: 1 };

/** So many that it takes several writes, and that a part of them can be missing. */
const COUNT = 3_000;

function stateFile(files: Files, directory: string): StateFile {
  return new StateFile({ directory, files, clock: systemClock });
}

/** A state in which each object says of which generation it is. */
export async function writeGeneration(files: Files, directory: string, generation: string): Promise<void> {
  const objects = Array.from({ length: COUNT }, (_, index) => ({
    object: { generation, index, filler: 'x'.repeat(40) },
  }));
  await stateFile(files, directory).write(HEAD, await finished(systemClock, bodyOf(objects)));
}

/** Which state is read, whole; `undefined` where there is none. */
export async function generationIn(files: Files, directory: string): Promise<string | undefined> {
  const saved = await stateFile(files, directory).read(HEAD, 0);
  if (saved === undefined) return undefined;
  const found = [...saved.objects].map(({ object }) => object as { generation: string });
  assert.equal(found.length, COUNT);
  assert.equal(new Set(found.map(({ generation }) => generation)).size, 1);
  return found[0]?.generation;
}
