import { accessSync, constants, existsSync, mkdirSync, realpathSync, rmdirSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

const DIRECTORY_MODE = 0o700;
/** S_ISVTX, which Node does not name: as in /tmp, only its owner can rename or remove a file. */
const STICKY = 0o1000;
const ROOT = 0;

/**
 * Makes the directory if it is not there. Throws a clause for the log where another user could replace what this
 * process keeps in it, or a directory above it. `setting`: the flag that gives another place.
 */
export function makeSafeDirectory(directory: string, setting: string): void {
  make(directory, setting);
  for (const each of withAncestors(directory)) mustBeSafe(each, setting);
}

/** Throws where {@link makeSafeDirectory} would, and where files cannot be written. Leaves no directory behind. */
export function trySafeDirectory(directory: string, setting: string): void {
  // Nothing else tells for sure: in /proc, permissions say yes.
  const first = make(directory, setting);
  try {
    for (const each of withAncestors(directory)) mustBeSafe(each, setting);
    mustBeWritable(directory, setting);
  } finally {
    if (first !== undefined) removeEmpty(directory, first);
  }
}

/**
 * Returns the first directory that was not there. Step by step, because `recursive` of Node 24 never returns where a
 * directory that is there lets none be made with ENOENT, as /proc does.
 */
function make(directory: string, setting: string): string | undefined {
  const missing: string[] = [];
  for (let each = resolve(directory); !existsSync(each); each = dirname(each)) missing.unshift(each);
  try {
    for (const each of missing) makeOne(each);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(`the directory ${directory} cannot be made (${code}); make it, or give another ${setting}`);
  }
  if (!isDirectory(directory)) throw new Error(`${directory} is no directory; remove it, or give another ${setting}`);
  return missing[0];
}

function makeOne(directory: string): void {
  try {
    mkdirSync(directory, { mode: DIRECTORY_MODE });
  } catch (error) {
    // Another process may have made it meanwhile.
    if (!isDirectory(directory)) throw error;
  }
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}

function mustBeWritable(directory: string, setting: string): void {
  try {
    accessSync(directory, constants.W_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new Error(`no file can be written in ${directory} (${code}); allow it, or give another ${setting}`);
  }
}

/** From `directory` up to `first`, as far as nobody has put anything there meanwhile. */
function removeEmpty(directory: string, first: string): void {
  const above = dirname(first);
  try {
    for (let each = resolve(directory); each !== above && each !== dirname(each); each = dirname(each)) rmdirSync(each);
  } catch {
    // It is in use.
  }
}

/** As it is written and, if links lead elsewhere, as it really is: whoever can replace any of these has its files. */
function withAncestors(directory: string): ReadonlySet<string> {
  const all = new Set<string>();
  for (let each of [resolve(directory), realpathSync(directory)]) {
    for (; !all.has(each); each = dirname(each)) all.add(each);
  }
  return all;
}

function mustBeSafe(directory: string, setting: string): void {
  const { mode, uid, gid } = statSync(directory);
  if (!isOursOrRoots(uid)) {
    throw new Error(`${directory} belongs to user ${uid}, who can replace files in it; give another ${setting}`);
  }
  if ((mode & STICKY) !== 0) return;
  const whoCan = (who: string, cure: string) =>
    new Error(`${who} can replace files in ${directory}; take that away (${cure}), or give another ${setting}`);
  if ((mode & constants.S_IWOTH) !== 0) throw whoCan('every user', 'chmod o-w');
  if ((mode & constants.S_IWGRP) !== 0 && gid !== ROOT) throw whoCan(`group ${gid}`, 'chmod g-w');
}

export function isOursOrRoots(uid: number): boolean {
  return uid === ROOT || uid === process.getuid?.();
}
