import assert from 'node:assert/strict';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { DISK } from '../../src/state/disk.ts';
import { complyWithFiles } from '../compliance/files.ts';
import { MemoryFiles } from '../fakes/memory-files.ts';

const folder = mkdtempSync(join(tmpdir(), 'state-files-'));
after(() => rmSync(folder, { recursive: true }));
const freshDirectory = () => mkdtempSync(join(folder, 'each-'));

describe('in memory', () => complyWithFiles(() => ({ files: new MemoryFiles(), directory: '/state' })));

describe('on disk', () => {
  complyWithFiles(() => ({ files: DISK, directory: freshDirectory() }));

  test('a directory is made for this user alone, and a file, too', async () => {
    const directory = join(freshDirectory(), 'deep', 'down');
    await DISK.prepare(directory);
    const path = join(directory, 'file');
    await (await DISK.create(path)).close();
    assert.deepEqual([statSync(directory).mode & 0o777, statSync(path).mode & 0o777], [0o700, 0o600]);
  });

  test('a directory in which another user could replace files is refused', async () => {
    const open = freshDirectory();
    chmodSync(open, 0o777);
    await assert.rejects(DISK.prepare(join(open, 'below')), /every user can replace files in .*another --state-dir/);
  });

  const refused: readonly (readonly [what: string, make: (path: string) => void, why: RegExp])[] = [
    ['a symbolic link', (path) => symlinkSync('/etc/passwd', path), /symbolic link/],
    ['a directory', (path) => mkdirSync(path), /no regular file/],
    ['a file that others may read', (path) => writeFileSync(path, '', { mode: 0o644 }), /other users/],
    [
      'a file of another user',
      (path) => {
        writeFileSync(path, '', { mode: 0o600 });
        chownSync(path, 65_534, 65_534);
      },
      /belongs to user 65534/,
    ],
  ];
  for (const [what, make, why] of refused) {
    const skip = what.includes('another user') && process.getuid?.() !== 0 ? 'only root can give files away' : false;
    test(`${what} is not read`, { skip }, async () => {
      const path = join(freshDirectory(), 'file');
      make(path);
      await assert.rejects(DISK.read(path), why);
    });
  }
});
