import { once } from 'node:events';
import { chmodSync, lstatSync, mkdtempSync, renameSync, rmSync, type Stats, unlinkSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { makeSafeDirectory } from '../../kernel/safe-directory.ts';

/**
 * Only the owner and root can open the socket. There is no other authentication, because Node cannot ask the kernel for
 * the user at the other end (SO_PEERCRED).
 */
const MODE = 0o600;

/** The path of a listening Unix socket. */
interface SocketFile {
  /** Removes the path, unless another process has it by now. */
  release(): void;
}

/**
 * Makes the server listen at a path. Replaces the socket of a dead process, but no other file and no socket that is
 * served. Rejects with a clause for the log.
 *
 * The socket is made in a directory that only its owner can enter, and moved to its path when its mode is set. So
 * nobody can open it before, and a dead socket is replaced atomically, also by two processes at the same time. On
 * close, Node removes the path that a server was bound to, whoever has it by then; here it finds nothing there.
 */
export async function listenAt(server: Server, path: string): Promise<SocketFile> {
  const directory = dirname(path);
  makeSafeDirectory(directory, '--control-socket');
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

async function mustBeFree(path: string): Promise<void> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) return;
  if (!found.isSocket()) throw new Error('something that is not a socket is in its place; remove it');
  if (await isServed(path)) {
    throw new Error(
      'another process serves it, which subcommands reach instead of this one; stop that one, or give this one another --control-socket',
    );
  }
}

/** Whether a process listens there. In doubt the answer is yes, so that no live socket is replaced. */
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
