import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fstatSync, realpathSync } from 'node:fs';
import { resolve } from 'node:path';
import { isSea } from 'node:sea';
import { close } from '../sys/descriptor.ts';
import { SO_SNDBUF, SOCK_SEQPACKET, SOL_SOCKET, setOption, socketpair } from '../sys/socket.ts';
import { must } from '../sys/sys-error.ts';
import type { Clock } from '../util/clock.ts';
import { messageOf } from '../util/text.ts';
import { Channel } from './channel.ts';
import type { Successor } from './predecessor.ts';
import { CHANNEL_VARIABLE, VERSIONS } from './protocol.ts';

/** The kernel adds it to the name of a program whose file has been removed or replaced, since it was started even. */
const DELETED = / \(deleted\)$/;

/** Found out at the start, as another version may have taken the place of the executable when it is needed. */
const PROGRAM = isSea() ? programPath(process) : undefined;

const CHANNEL_FD = 3;

/** Several packets under way at once. The kernel caps it at `net.core.wmem_max`. */
const SEND_BUFFER = { level: SOL_SOCKET, name: SO_SNDBUF, value: 1 << 20 };

/** The predecessor's first message is there before the successor is. */
const HELLO_MS = 2_000;

export interface StartedSuccessor extends Successor {
  readonly pid: number;
}

export interface SuccessorSetup {
  readonly clock: Clock;
  /** This program's version. */
  readonly program: string;
}

/**
 * Starts this program again, as it now is on disk and with the same arguments, with one end of a socket that has no name
 * which anybody else could open. Rejects when there is no process.
 */
export async function startSuccessor({ clock, program }: SuccessorSetup): Promise<StartedSuccessor> {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, ends));
  const [own, others] = ends as unknown as [number, number];
  setOption(own, SEND_BUFFER);
  const channel = new Channel(own, clock);
  try {
    await channel.send({ kind: 'hello', versions: VERSIONS, program });
    const child = await spawned(others);
    return { pid: child.pid as number, channel, kill: () => kill(child) };
  } catch (error) {
    channel.close();
    throw error;
  } finally {
    close(others);
  }
}

/**
 * The way to the predecessor, when this process is a successor. Programs that it starts learn nothing of it: Node has
 * every descriptor that it inherits closed on exec. Rejects with a sentence when nobody is there who hands over.
 */
export async function channelToPredecessor(env: NodeJS.ProcessEnv, clock: Clock): Promise<Channel | undefined> {
  const text = env[CHANNEL_VARIABLE];
  delete env[CHANNEL_VARIABLE];
  if (text === undefined) return undefined;
  try {
    if (!/^\d{1,9}$/.test(text)) throw new Error('it is not a number');
    const fd = Number(text);
    if (!fstatSync(fd).isSocket()) throw new Error('it is not a socket');
    const channel = new Channel(fd, clock);
    await channel.expect('hello', { untilMs: clock.now() + HELLO_MS });
    return channel;
  } catch (error) {
    throw new Error(
      `${CHANNEL_VARIABLE}=${JSON.stringify(text)} leads to no process that hands over (${messageOf(error)}); only such a process sets it, so unset it`,
    );
  }
}

/**
 * Where this program lies on disk, under the name that it was called by: that may be a symbolic link, which is led
 * elsewhere by an upgrade. `execPath` is what the kernel says (`/proc/self/exe`).
 */
export function programPath({ argv0, execPath }: { readonly argv0: string; readonly execPath: string }): string {
  const file = execPath.replace(DELETED, '');
  try {
    const called = resolve(argv0);
    return argv0.includes('/') && realpathSync(called) === file ? called : file;
  } catch {
    return file;
  }
}

async function spawned(channelFd: number): Promise<ChildProcess> {
  const source = [...process.execArgv, process.argv[1] as string];
  const [file, before] = PROGRAM === undefined ? [process.execPath, source] : [PROGRAM, []];
  const child = spawn(file, [...before, ...process.argv.slice(2)], {
    stdio: ['inherit', 'inherit', 'inherit', channelFd],
    env: { ...process.env, [CHANNEL_VARIABLE]: String(CHANNEL_FD) },
  });
  // Also after it has begun: nothing that happens to it may end this process.
  child.on('error', () => {});
  await once(child, 'spawn');
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}
