import { constants, mkdirSync, realpathSync, statSync } from 'node:fs';
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
  mkdirSync(directory, { recursive: true, mode: DIRECTORY_MODE });
  for (const each of withAncestors(directory)) mustBeSafe(each, setting);
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
