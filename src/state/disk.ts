import { constants } from 'node:fs';
import { open, rename, rm, utimes } from 'node:fs/promises';
import { isOursOrRoots, makeSafeDirectory, trySafeDirectory } from '../kernel/safe-directory.ts';
import type { FileContent, Files, NewFile } from './files.ts';

/** Far above 10,000 Services with 250,000 endpoints. */
const MAX_BYTES = 256 * 1024 * 1024;

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_DIRECTORY } = constants;

/** Addresses of a whole cluster are nobody else's business. */
const MODE = 0o600;
const OF_OTHERS = 0o077;

/** This machine's disks. Node's threads wait for them, so a slow one holds up nothing else. */
export const DISK: Files = {
  prepare: async (directory) => makeSafeDirectory(directory, '--state-dir'),
  read: async (path) => {
    const file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch((error: unknown) => {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOENT') return undefined;
      throw code === 'ELOOP' ? new Error('is a symbolic link') : error;
    });
    if (file === undefined) return undefined;
    try {
      const stats = await file.stat();
      if (!stats.isFile()) throw new Error('is no regular file');
      if (!isOursOrRoots(stats.uid)) throw new Error(`belongs to user ${stats.uid}`);
      if ((stats.mode & OF_OTHERS) !== 0) throw new Error('may be read or written by other users (chmod 600)');
      if (stats.size > MAX_BYTES) throw new Error(`has ${stats.size} bytes; at most ${MAX_BYTES} are read`);
      return { bytes: await file.readFile(), changedAt: stats.mtimeMs } satisfies FileContent;
    } finally {
      await file.close();
    }
  },
  create: async (path) => {
    const file = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, MODE);
    return {
      write: async (bytes) => await file.writeFile(bytes),
      sync: async () => await file.sync(),
      close: async () => await file.close(),
    } satisfies NewFile;
  },
  rename: async (from, to) => await rename(from, to),
  syncDirectory: async (path) => {
    const directory = await open(path, O_RDONLY | O_DIRECTORY);
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  },
  remove: async (path) => await rm(path, { force: true }),
  touch: async (path, at) => await utimes(path, at / 1_000, at / 1_000),
};

/** For who only looks: no directory is made. Rejects also where a state could not be written. */
export const DISK_TO_LOOK_AT: Files = {
  ...DISK,
  prepare: async (directory) => trySafeDirectory(directory, '--state-dir'),
};
