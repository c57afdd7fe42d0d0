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

/** Why the socket cannot be served: a clause for the log. */
export class SocketTakenError extends Error {
  override readonly name = 'SocketTakenError';
}

/**
 * Only the owner and root can open the socket. That is all the authentication there is: Node cannot ask the kernel for
 * the user at the other end (SO_PEERCRED).
 */
const MODE = 0o600;
const DIRECTORY_MODE = 0o700;
/** S_ISVTX, which Node does not name: as in /tmp, each file can be renamed and removed by its owner only. */
const STICKY = 0o1000;
const ROOT = 0;

/** The name by which a listening Unix socket is reached. */
export interface SocketFile {
  /** Removes the name, unless another process has it by now. */
  release(): void;
}

/**
 * Makes the server listen at a path. Replaces a socket that a dead process left there, but neither a socket that is
 * served nor any other file: rejects with {@link SocketTakenError}, or with the system's error.
 *
 * The socket is made in a directory that only its owner can enter, and moved to its name when it is complete. So nobody
 * can open it before its mode is set. Replacing a dead socket leaves no moment without one. When two processes do it at
 * the same time, one of them is reached. Node removes the path that a server was bound to, even if another process has
 * that name by then; here it finds nothing there.
 */
export async function listenAt(server: Server, path: string): Promise<SocketFile> {
  const directory = dirname(path);
  mkdirSync(directory, { recursive: true, mode: DIRECTORY_MODE });
  mustBeSafe(directory);
  await mustBeFree(path);
  const workshop = mkdtempSync(`${directory}/.`);
  try {
    // With the final name, as `ss -xlp` shows the path that was bound.
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

/** Other users must not be able to replace the socket with one of their own. */
function mustBeSafe(directory: string): void {
  const { mode, uid, gid } = statSync(directory);
  const isSticky = (mode & STICKY) !== 0;
  if (uid !== ROOT && uid !== process.getuid?.()) {
    throw new SocketTakenError(
      `${directory} belongs to user ${uid}, who can replace files in it; give another --control-socket`,
    );
  }
  if (!isSticky && (mode & constants.S_IWOTH) !== 0) {
    throw new SocketTakenError(
      `every user can replace files in ${directory}; take that away from them (chmod o-w), or give another --control-socket`,
    );
  }
  if (!isSticky && (mode & constants.S_IWGRP) !== 0 && gid !== ROOT) {
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

/** Whether anybody listens. When it cannot be known, the answer is yes, so that no live socket is replaced. */
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
    // The file or its directory is gone or cannot be changed; a socket that nobody serves does no harm.
  }
}
