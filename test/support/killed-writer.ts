import { DISK } from '../../src/state/disk.ts';
import type { Files, NewFile } from '../../src/state/files.ts';
import { writeGeneration } from './state-generations.ts';

/*
 * killed-writer.ts DIRECTORY GENERATION STEPS: writes a state to the disk, and kills itself when it has done so many
 * steps.
 */

const [, , directory = '', generation = '', steps = ''] = process.argv;
let left = Number(steps);

async function step<T>(work: () => Promise<T>): Promise<T> {
  if (left-- === 0) {
    process.kill(process.pid, 'SIGKILL');
    await new Promise(() => {});
  }
  return await work();
}

/** Each call is a step. */
const files: Files = {
  prepare: (path) => step(() => DISK.prepare(path)),
  read: (path) => step(() => DISK.read(path)),
  create: async (path) => {
    const file = await step(() => DISK.create(path));
    return {
      write: (bytes) => step(() => file.write(bytes)),
      sync: () => step(() => file.sync()),
      close: () => step(() => file.close()),
    } satisfies NewFile;
  },
  rename: (from, to) => step(() => DISK.rename(from, to)),
  syncDirectory: (path) => step(() => DISK.syncDirectory(path)),
  remove: (path) => step(() => DISK.remove(path)),
  touch: (path, at) => step(() => DISK.touch(path, at)),
};

await writeGeneration(files, directory, generation);
