import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Clock } from '../contracts/clock.ts';
import { close } from '../sys/descriptor.ts';
import { SO_SNDBUF, SOCK_SEQPACKET, SOL_SOCKET, setOption, socketpair } from '../sys/socket.ts';
import { must } from '../sys/sys-error.ts';
import { Channel } from './channel.ts';
import type { Successor } from './predecessor.ts';
import { CHANNEL_VARIABLE } from './protocol.ts';

/** Set by dist/kube-userspace-proxy: where that file is, so that what is started is what is there by now. */
const PROGRAM_VARIABLE = 'KUBE_USERSPACE_PROXY_PROGRAM';

const CHANNEL_FD = 3;

/** Several packets under way at once. The kernel caps it at `net.core.wmem_max`. */
const SEND_BUFFER = { level: SOL_SOCKET, name: SO_SNDBUF, value: 1 << 20 };

export interface StartedSuccessor extends Successor {
  readonly pid: number;
}

/**
 * Starts this program again, as it now is on disk and with the same arguments, with one end of a socket that has no name
 * which anybody else could open. Rejects when there is no process.
 */
export async function startSuccessor({ clock }: { readonly clock: Clock }): Promise<StartedSuccessor> {
  const ends = new Int32Array(2);
  must('socketpair', socketpair(SOCK_SEQPACKET, ends));
  const [own, others] = ends as unknown as [number, number];
  setOption(own, SEND_BUFFER);
  try {
    const child = await spawned(others);
    return { pid: child.pid as number, channel: new Channel(own, clock), kill: () => kill(child) };
  } catch (error) {
    close(own);
    throw error;
  } finally {
    close(others);
  }
}

/**
 * The way to the predecessor, when this process is a successor. Programs that it starts learn nothing of it: Node has
 * every descriptor that it inherits closed on exec.
 */
export function channelToPredecessor(env: NodeJS.ProcessEnv, clock: Clock): Channel | undefined {
  const text = env[CHANNEL_VARIABLE];
  delete env[CHANNEL_VARIABLE];
  if (text === undefined) return undefined;
  return new Channel(Number(text), clock);
}

async function spawned(channelFd: number): Promise<ChildProcess> {
  const args = process.argv.slice(2);
  const program = process.env[PROGRAM_VARIABLE];
  const [file, before] =
    program === undefined ? [process.execPath, [...process.execArgv, process.argv[1] as string]] : [program, []];
  const child = spawn(file, [...before, ...args], {
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
