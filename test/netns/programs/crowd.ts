import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** How the clients of a crowd fared: `answered`, or the error code of each. */
export type Fates = Readonly<Record<string, number>>;

interface Crowd {
  readonly fates: Record<string, number>;
  readonly ms: number[];
  left: number;
  /** Settles when all have ended. */
  readonly done: Promise<unknown>;
}

const crowds = new Map<number, Crowd>();
let last = 0;

/**
 * Clients of an `echo` that come one after another, `everyMs` or as fast as they are accepted, without end if there is
 * no `count`. Each sends a byte, and goes when it has come back.
 */
export async function gather(args: {
  readonly host: string;
  readonly port: number;
  readonly count?: number;
  readonly everyMs?: number;
}): Promise<number> {
  const { host, port, count = Number.POSITIVE_INFINITY, everyMs } = args;
  const { promise, resolve } = Promise.withResolvers<void>();
  const crowd: Crowd = { fates: {}, ms: [], left: count, done: promise };
  const open = new Set<Socket>();
  const end = (socket: Socket, fate: string, sinceMs: number): void => {
    if (!open.delete(socket)) return;
    socket.resetAndDestroy();
    crowd.fates[fate] = (crowd.fates[fate] ?? 0) + 1;
    crowd.ms.push(performance.now() - sinceMs);
    if (open.size === 0 && crowd.left === 0) resolve();
  };
  const come = (): Socket => {
    const sinceMs = performance.now();
    const socket = connect(port, host);
    open.add(socket);
    socket.on('connect', () => socket.write('.'));
    socket.on('data', () => end(socket, 'answered', sinceMs));
    socket.on('error', (error: NodeJS.ErrnoException) => end(socket, error.code ?? error.message, sinceMs));
    socket.on('close', () => end(socket, 'closed', sinceMs));
    return socket;
  };
  const all = (async () => {
    for (; crowd.left > 0; crowd.left--) {
      const socket = come();
      if (everyMs !== undefined) await sleep(everyMs);
      // One that is refused or waits in the kernel's queue holds up nobody.
      else await Promise.race([once(socket, 'connect').catch(() => {}), sleep(10)]);
    }
    if (open.size === 0) resolve();
  })();
  void all;
  crowds.set(++last, crowd);
  return last;
}

/** Nobody comes any more. Resolves when all have fared somehow. */
export async function disperse({
  crowd: id,
}: {
  readonly crowd: number;
}): Promise<{ fates: Fates; slowestMs: number }> {
  const crowd = crowds.get(id)!;
  // The one that comes now is counted down.
  if (crowd.left === Number.POSITIVE_INFINITY) crowd.left = 1;
  await crowd.done;
  return { fates: crowd.fates, slowestMs: Math.max(...crowd.ms) };
}
