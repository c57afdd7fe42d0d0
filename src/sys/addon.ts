import { hash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { getRawAsset } from 'node:sea';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';

/*
 * Replaces the package koffi in the single executable (scripts/build.ts). The dynamic linker maps koffi's addon from a
 * file, so the addon must be a file on a mount without `noexec`:
 *
 * 1. `koffi.node` beside the program, as in dist/;
 * 2. `../lib/kube-userspace-proxy/koffi.node`, where the Debian package and the image put it;
 * 3. where only the executable was copied: a file that this program writes once, in the first private directory where
 *    that works.
 *
 * A file is loaded only if its owner is root or this user, only the owner can write it, and its hash is the one that
 * this program was built with. An addon of another version, from half an upgrade, must not be loaded.
 */

declare const ADDON_SHA256: string;

/** Key of worker threads' environment data: the file that the main thread has found and keeps open. */
const ADDON_FILE = 'koffi.node';

const NAME = 'kube-userspace-proxy';

interface AddonPlaces {
  /** Files of an installation. */
  readonly installed: readonly string[];
  /** Where this program may write the file. */
  readonly directories: readonly string[];
}

export function addonPlaces(program: string, env: NodeJS.ProcessEnv, uid: number): AddonPlaces {
  const folder = dirname(program);
  const runtime = env['XDG_RUNTIME_DIR'];
  return {
    installed: [join(folder, 'koffi.node'), join(folder, `../lib/${NAME}/koffi.node`)],
    directories: [
      ...(uid === 0 ? [`/run/${NAME}`, `/var/lib/${NAME}`, `/var/cache/${NAME}`] : []),
      ...(runtime?.startsWith('/') ? [join(runtime, NAME)] : []),
      `/dev/shm/${NAME}-${uid}`,
      `/tmp/${NAME}-${uid}`,
    ],
  };
}

export interface Addon {
  /** In hexadecimal. */
  readonly sha256: string;
  content(): Buffer;
  /** Throws when the file cannot be mapped as code. */
  load(path: string): unknown;
}

/**
 * Returns the addon's exports, from the first place that works. Throws an Error that lists what failed in each place.
 */
export function loadAddon({ installed, directories }: AddonPlaces, addon: Addon): unknown {
  const fileName = `koffi-${addon.sha256.slice(0, 16)}.node`;
  const places = [
    ...installed.map((path) => ({ path, open: () => openChecked(path, addon.sha256) })),
    ...directories.map((each) => ({ path: join(each, fileName), open: () => openWritten(each, fileName, addon) })),
  ];
  const problems: string[] = [];
  for (const { path, open } of places) {
    let fd: number | undefined;
    try {
      fd = open();
      // Through the descriptor, which stays open: the file that was checked is loaded, now and by each worker thread.
      const exports = addon.load(`/proc/self/fd/${fd}`);
      setEnvironmentData(ADDON_FILE, `/proc/self/fd/${fd}`);
      return exports;
    } catch (error) {
      if (fd !== undefined) closeSync(fd);
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') problems.push(`${path}: ${(error as Error).message}`);
    }
  }
  throw new Error(`koffi's addon cannot be loaded from any place (${problems.join('; ')})`);
}

/** The descriptor of a file that can be trusted. */
function openChecked(path: string, sha256: string): number {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const { uid, mode } = fstatSync(fd);
    const isOwnerTrusted = uid === 0 || uid === process.geteuid?.();
    if (!isOwnerTrusted || (mode & 0o022) !== 0) throw new Error('others than root and this user may write it');
    if (hash('sha256', readFileSync(fd), 'hex') !== sha256) {
      throw new Error('it is not the file that this program was built with');
    }
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** {@link openChecked} in a private directory, where this program writes the file if it is missing or wrong. */
function openWritten(directory: string, fileName: string, { sha256, content }: Addon): number {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const folder = lstatSync(directory);
  if (!folder.isDirectory() || folder.uid !== process.geteuid?.() || (folder.mode & 0o022) !== 0) {
    throw new Error('the directory is not private to this user');
  }
  const path = join(directory, fileName);
  try {
    return openChecked(path, sha256);
  } catch {
    const unfinished = `${path}.${process.pid}`;
    try {
      writeFileSync(unfinished, content(), { flag: 'wx', mode: 0o500 });
      chmodSync(unfinished, 0o500);
      renameSync(unfinished, path);
    } finally {
      rmSync(unfinished, { force: true });
    }
    return openChecked(path, sha256);
  }
}

function dlopen(path: string): unknown {
  const addon: { exports: unknown } = { exports: {} };
  process.dlopen(addon as NodeJS.Module, path);
  return addon.exports;
}

function exportsOfAddon(): unknown {
  const found = getEnvironmentData(ADDON_FILE);
  if (typeof found === 'string') return dlopen(found);
  return loadAddon(addonPlaces(process.execPath, process.env, process.geteuid?.() ?? 0), {
    sha256: ADDON_SHA256,
    content: () => Buffer.from(getRawAsset('koffi.node') as ArrayBuffer),
    load: dlopen,
  });
}

/** `undefined` in a run from the sources, which uses the package itself. */
export default typeof ADDON_SHA256 === 'undefined' ? undefined : exportsOfAddon();
