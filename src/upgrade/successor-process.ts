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
import { CHANNEL_VARIABLE, FORMAT, type MessageOf } from './protocol.ts';
import type { Successor } from './upgrade.ts';

/** The kernel adds it to the name of a program whose file has been removed or replaced. */
const DELETED = / \(deleted\)$/;

/** Found at the start: when an upgrade is requested, another version may have taken the place of the executable. */
const PROGRAM = isSea() ? programPath(process) : undefined;

const CHANNEL_FD = 3;

/** Several packets under way at once. The kernel caps it at `net.core.wmem_max`. */
export const SEND_BUFFER = { level: SOL_SOCKET, name: SO_SNDBUF, value: 1 << 20 };

/** The predecessor's first message is there before the successor is. */
const HELLO_MS = 2_000;

/** What a successor hears first, with the version of the program that says it. */
export type Greeting = Pick<MessageOf<'hello'>, 'program' | 'isOffline'>;

/** Whom this process takes over from. */
export interface Predecessor {
  readonly channel: Channel;
  /** It does not reach its API server. */
  readonly isOffline: boolean;
}

/** The first message of a predecessor. */
export async function sayHello(channel: Channel, said: Greeting): Promise<void> {
  await channel.send({ kind: 'hello', versions: [FORMAT], ...said });
}

/** The other end, once it has said hello. Rejects when it says something else, or nothing in time. */
export async function helloFrom(channel: Channel, untilMs: number): Promise<Predecessor> {
  const { isOffline = false } = await channel.expect('hello', { untilMs });
  return { channel, isOffline };
}

/**
 * Starts this program again, as it now is on disk and with the same arguments. It inherits one end of a socket that has
 * no name, so nobody else can open it. Rejects when there is no process.
 */
export async function startSuccessor(said: Greeting, clock: Clock): Promise<Successor> {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, ends));
  const [own, others] = ends as unknown as [number, number];
  setOption(own, SEND_BUFFER);
  const channel = new Channel(own, clock);
  try {
    await sayHello(channel, said);
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
 * The predecessor, with the channel to it; `undefined` when this process is not a successor. Programs that this one
 * starts do not inherit the channel: Node marks every descriptor that it inherits as close-on-exec. Rejects with a
 * sentence when there is no predecessor at the other end.
 */
export async function findPredecessor(env: NodeJS.ProcessEnv, clock: Clock): Promise<Predecessor | undefined> {
  const text = env[CHANNEL_VARIABLE];
  delete env[CHANNEL_VARIABLE];
  if (text === undefined) return undefined;
  try {
    if (!/^\d{1,9}$/.test(text)) throw new Error('it is not a number');
    const fd = Number(text);
    if (!fstatSync(fd).isSocket()) throw new Error('it is not a socket');
    return await helloFrom(new Channel(fd, clock), clock.now() + HELLO_MS);
  } catch (error) {
    throw new Error(
      `${CHANNEL_VARIABLE}=${JSON.stringify(text)} leads to no process that hands over (${messageOf(error)}); ` +
        'only such a process sets it, so unset it',
    );
  }
}

/**
 * Where this program lies on disk, by the name that it was called by. That may be a symbolic link, which an upgrade
 * points to another file. `execPath` is what the kernel says (`/proc/self/exe`).
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
  // For as long as the child lives: none of its errors may end this process.
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
