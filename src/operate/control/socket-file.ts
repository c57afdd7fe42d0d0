import { once } from 'node:events';
import {
  chmodSync,
  constants,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
  unlinkSync,
} from 'node:fs';
import { connect, type Server } from 'node:net';
import { basename, dirname, join } from 'node:path';

/** Why the socket cannot be had: a clause for the log. */
export class SocketTakenError extends Error {
  override readonly name = 'SocketTakenError';
}

/**
 * Only its owner and root can open it: that is all the authentication there is, as Node cannot ask the kernel who is at
 * the other end (SO_PEERCRED).
 */
const MODE = 0o600;
const DIRECTORY_MODE = 0o700;
/** S_ISVTX, which Node does not name: as in /tmp, each file can be renamed and removed by its owner only. */
const STICKY = 0o1000;
const ROOT = 0;

/** The name by which a listening Unix socket is reached. */
export interface SocketFile {
  /** Takes the name away, unless it leads to another process by now. */
  release(): void;
}

/**
 * Has the server listen at a path. What a dead process left there is replaced, a socket that somebody serves and a file
 * that is none are not: rejects with {@link SocketTakenError}, or with what the system says.
 *
 * The socket is made in a directory that nobody else may enter and gets its name when it is complete. So nobody reaches
 * it before its mode is set, whoever replaces a dead one leaves no moment without, and of two processes that do it at
 * the same time one is reached, wholly. And Node, which removes the file that a server has been bound to, whoever has
 * that name by now, does not find it.
 */
export async function listenAt(server: Server, path: string): Promise<SocketFile> {
  mkdirSync(dirname(path), { recursive: true, mode: DIRECTORY_MODE });
  mustBeSafe(dirname(path));
  await mustBeFree(path);
  const workshop = mkdtempSync(`${dirname(path)}/.`);
  try {
    // Its own name, as it is what `ss -xlp` shows ever after.
    const made = join(workshop, basename(path));
    server.listen(made);
    await once(server, 'listening');
    chmodSync(made, MODE);
    const ours = lstatSync(made);
    renameSync(made, path);
    return { release: () => releaseIf(path, ours) };
  } catch (error) {
    if (server.listening) server.close();
    throw error;
  } finally {
    rmSync(workshop, { recursive: true, force: true });
  }
}

/** Where others may rename what is not theirs, nobody can tell whose socket a name leads to. */
function mustBeSafe(directory: string): void {
  const { mode, uid, gid } = statSync(directory);
  if (uid !== ROOT && uid !== process.getuid?.()) {
    throw new SocketTakenError(
      `${directory} belongs to user ${uid}, who can replace files in it; give another --control-socket`,
    );
  }
  if ((mode & STICKY) !== 0) return;
  if ((mode & constants.S_IWOTH) !== 0) {
    throw new SocketTakenError(
      `every user can replace files in ${directory}; take that away from them (chmod o-w), or give another --control-socket`,
    );
  }
  if ((mode & constants.S_IWGRP) !== 0 && gid !== ROOT) {
    throw new SocketTakenError(
      `group ${gid} can replace files in ${directory}; take that away from it (chmod g-w), or give another --control-socket`,
    );
  }
}

async function mustBeFree(path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) throw new SocketTakenError('something that is not a socket is in its place; remove it');
  if (await isServed(path)) {
    throw new SocketTakenError(
      'another process serves it, which subcommands reach instead of this one; stop that one, or give this one another --control-socket',
    );
  }
}

/** Whether anybody listens. Of what cannot be told, the answer is yes: nobody's socket is taken away by mistake. */
export async function isServed(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, 'connect');
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code !== 'ECONNREFUSED' && code !== 'ENOENT';
  } finally {
    socket.destroy();
  }
}

function releaseIf(path: string, ours: Stats): void {
  try {
    const found = lstatSync(path);
    if (found.ino === ours.ino && found.dev === ours.dev) unlinkSync(path);
  } catch {
    // It is gone, or its directory is, or that cannot be written any more: a socket that nobody serves does no harm.
  }
}
