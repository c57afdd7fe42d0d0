import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Files } from '../../src/state/files.ts';

/** What every file system for the state promises. `open` gives one, and an empty directory in it. */
export function complyWithFiles(open: () => { readonly files: Files; readonly directory: string }): void {
  const write = async (files: Files, path: string, ...texts: readonly string[]) => {
    const file = await files.create(path);
    for (const text of texts) await file.write(Buffer.from(text));
    await file.sync();
    await file.close();
  };
  const text = async (files: Files, path: string) => (await files.read(path))?.bytes.toString();

  test('a file has what was written to it, piece after piece; where there is none, nothing is read', async () => {
    const { files, directory } = open();
    const path = join(directory, 'file');
    await files.prepare(directory);
    assert.equal(await files.read(path), undefined);
    await write(files, path, 'one ', 'two');
    await files.syncDirectory(directory);
    assert.equal(await text(files, path), 'one two');
  });

  test('a file is not created over another; a rename takes the place of another', async () => {
    const { files, directory } = open();
    const [old, next] = [join(directory, 'old'), join(directory, 'new')];
    await write(files, old, 'old');
    await assert.rejects(files.create(old), /EEXIST/);
    await write(files, next, 'new');
    await files.rename(next, old);
    assert.deepEqual([await text(files, old), await text(files, next)], ['new', undefined]);
    await assert.rejects(files.rename(next, old), /ENOENT/);
  });

  test('a file is removed; one that is not there is no error', async () => {
    const { files, directory } = open();
    const path = join(directory, 'file');
    await write(files, path, 'text');
    await files.remove(path);
    await files.remove(path);
    assert.equal(await files.read(path), undefined);
  });

  test('the time of a file can be set; that of none cannot', async () => {
    const { files, directory } = open();
    const path = join(directory, 'file');
    await write(files, path, 'text');
    await files.touch(path, 1_700_000_000_000);
    assert.equal((await files.read(path))?.changedAt, 1_700_000_000_000);
    await assert.rejects(files.touch(join(directory, 'none'), 0), /ENOENT/);
  });
}
