import { chmodSync, lstatSync, rmSync } from 'node:fs';
import { close } from '../sys/descriptor.ts';
import { listen, type PeerCredentials, peerCredentials, SOCK_SEQPACKET, setOption } from '../sys/socket.ts';
import { must } from '../sys/sys-error.ts';
import { acceptUnix, bindUnix, connectUnix } from '../sys/unix-socket.ts';
import type { Clock } from '../util/clock.ts';
import { sleep } from '../util/wait.ts';
import { Channel } from './channel.ts';
import { type Greeting, helloFrom, type Predecessor, SEND_BUFFER, sayHello } from './successor-process.ts';
import type { Successor } from './upgrade.ts';

/*
 * How a process that its predecessor has not started, such as that of a new Pod, takes over from it: both know the path
 * of a Unix socket, in a folder that is root's (docs/adr/0045). The newcomer listens there, and knocks. Who serves
 * connects, so nothing of its own is there for others to ask.
 */

/** Who serves connects at once, unless it is still starting. */
const ANSWER_MS = 5_000;

const POLL_MS = 50;

/** It saves its state before it says hello. */
const GREETING_MS = 10_000;

/** Only its owner may connect. */
const MODE = 0o600;

interface Meeting {
  /** `--hand-over-socket`. */
  readonly path: string;
  /** Throws where another user could put a socket there. */
  readonly guard: () => void;
  /** By whom this process may be asked, and whom it may ask. */
  readonly isTrusted: (peer: PeerCredentials) => boolean;
  readonly clock: Clock;
}

/**
 * The newcomer's part: the process that serves, or `undefined` when none answers. `knock` has it look.
 * Rejects with a sentence when the path cannot be used.
 */
export async function meetHolder(meeting: Meeting, knock: () => Promise<unknown>): Promise<Predecessor | undefined> {
  const fd = await visitor(meeting, knock);
  return fd === undefined ? undefined : await greeted(fd, meeting);
}

/** Listens for one only: a second connection would be of the same process, which has looked twice. */
async function visitor({ path, guard, clock }: Meeting, knock: () => Promise<unknown>): Promise<number | undefined> {
  guard();
  if (lstatSync(path, { throwIfNoEntry: false })?.isSocket() === false) {
    throw new Error(`${path} is no socket; remove it, or give another --hand-over-socket`);
  }
  // Of a newcomer that was killed.
  rmSync(path, { force: true });
  const listener = must(`cannot listen at ${path}`, bindUnix(path, SOCK_SEQPACKET));
  try {
    // Nobody can connect before it listens.
    chmodSync(path, MODE);
    must(`cannot listen at ${path}`, listen(listener, 1));
    for (const untilMs = clock.now() + ANSWER_MS; clock.now() < untilMs; ) {
      const fd = acceptUnix(listener);
      if (fd >= 0) return fd;
      await knock();
      await sleep(POLL_MS, clock);
    }
    return undefined;
  } finally {
    close(listener);
    rmSync(path, { force: true });
  }
}

/**
 * The part of the process that serves: who waits at the path for it, if anybody does. Rejects with a sentence when
 * another user could wait there. `greeting`: made once somebody is there.
 */
export async function newcomerAt(meeting: Meeting, greeting: () => Promise<Greeting>): Promise<Successor | undefined> {
  const { path, guard, clock } = meeting;
  guard();
  const fd = connectUnix(path, SOCK_SEQPACKET);
  if (fd < 0) return undefined;
  const channel = new Channel(fd, clock);
  try {
    const pid = trustedPeer(fd, meeting);
    setOption(fd, SEND_BUFFER);
    await sayHello(channel, await greeting());
    return { pid, channel, kill: (why) => dismiss(channel, why) };
  } catch (error) {
    channel.close();
    throw error;
  }
}

async function greeted(fd: number, meeting: Meeting): Promise<Predecessor> {
  const { clock } = meeting;
  const channel = new Channel(fd, clock);
  try {
    trustedPeer(fd, meeting);
    return await helloFrom(channel, clock.now() + GREETING_MS);
  } catch (error) {
    channel.close();
    throw error;
  }
}

/** 0 when it is in a PID namespace that is not visible from here. */
function trustedPeer(fd: number, { isTrusted }: Meeting): number {
  const peer = peerCredentials(fd);
  if (typeof peer === 'number') throw new Error('the kernel does not say who is at the other end');
  if (!isTrusted(peer)) throw new Error(`the process at the other end is of user ${peer.uid}`);
  return peer.pid;
}

/**
 * No signal reaches a process of another container. But it ends by itself when it reads this, whatever it has done by
 * then. If it hangs, its startup probe ends it.
 */
async function dismiss(channel: Channel, why = 'the process that serves has given up on this one'): Promise<void> {
  try {
    await channel.send({ kind: 'failed', err: why });
    // It may take that for the rest of a parcel that was cut short, and would wait for more.
    channel.end();
  } catch {
    // It is gone. No end without these words, which would mean that this process has let go.
  }
  await channel.closed();
}
