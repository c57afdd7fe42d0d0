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
 * Takes the place of the package koffi in the one executable (scripts/build.ts). The dynamic linker maps koffi's addon
 * from a file, so the addon needs a file on a mount without `noexec`:
 *
 * 1. `koffi.node` beside the program, as in dist/;
 * 2. `../lib/kube-userspace-proxy/koffi.node`, where the Debian package and the image put it;
 * 3. where only the one file was copied: a file that this program writes once into the first private directory that
 *    takes it.
 *
 * A file counts only if nobody but its owner can write it, the owner is root or this user, and its content is the one
 * that this program was built with: an addon of another version must not be loaded by half an upgrade.
 */

declare const ADDON_SHA256: string;

/** For worker threads: the file that the main thread has found and keeps open. */
const ADDON_FILE = 'koffi.node';

const NAME = 'kube-userspace-proxy';

export interface AddonPlaces {
  /** Files that an installation brings. */
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
  /** Throws where the file cannot be mapped as code. */
  load(path: string): unknown;
}

/** The addon's exports, from the first place that works. Throws with what was wrong in each place. */
export function loadAddon({ installed, directories }: AddonPlaces, addon: Addon): unknown {
  const problems: string[] = [];
  const attempt = (path: string, prepare: () => void = () => {}): { readonly exports: unknown } | undefined => {
    try {
      prepare();
      return { exports: loadFile(path, addon) };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') problems.push(`${path}: ${(error as Error).message}`);
      return undefined;
    }
  };
  for (const path of installed) {
    const loaded = attempt(path);
    if (loaded !== undefined) return loaded.exports;
  }
  for (const directory of directories) {
    const path = join(directory, `koffi-${addon.sha256.slice(0, 16)}.node`);
    const loaded = attempt(path, () => ensureFile(directory, path, addon));
    if (loaded !== undefined) return loaded.exports;
  }
  throw new Error(`koffi's addon cannot be loaded from any place (${problems.join('; ')})`);
}

/** Through a descriptor, which stays open: what was checked is what is loaded, now and by each worker thread later. */
function loadFile(path: string, { sha256, load }: Addon): unknown {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const { uid, mode } = fstatSync(fd);
    if (!isTrusted(uid) || (mode & 0o022) !== 0) throw new Error('others than root and this user may write it');
    if (!hasHash(fd, sha256)) {
      throw new Error('it is not the file that this program was built with');
    }
    const open = `/proc/self/fd/${fd}`;
    const loaded = load(open);
    setEnvironmentData(ADDON_FILE, open);
    return loaded;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Written once: a file of this name that is wrong is replaced. */
function ensureFile(directory: string, path: string, { sha256, content }: Addon): void {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const folder = lstatSync(directory);
  if (!folder.isDirectory() || folder.uid !== process.geteuid?.() || (folder.mode & 0o022) !== 0) {
    throw new Error('the directory is not private to this user');
  }
  try {
    if (hasHash(path, sha256)) return;
  } catch {
    // Not there yet.
  }
  const unfinished = `${path}.${process.pid}`;
  try {
    writeFileSync(unfinished, content(), { flag: 'wx', mode: 0o500 });
    chmodSync(unfinished, 0o500);
    renameSync(unfinished, path);
  } finally {
    rmSync(unfinished, { force: true });
  }
}

function hasHash(file: string | number, sha256: string): boolean {
  return hash('sha256', readFileSync(file), 'hex') === sha256;
}

function isTrusted(uid: number): boolean {
  return uid === 0 || uid === process.geteuid?.();
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

/** `undefined` in a run from the sources, where the package itself is used. */
export default typeof ADDON_SHA256 === 'undefined' ? undefined : exportsOfAddon();
