import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { isOursOrRoots } from './safe-directory.ts';

/** Of an abstract Unix socket. */
const NAME = 'kube-userspace-proxy';

/** The process that proxies in this network namespace. */
export interface NodeHolder {
  /** `undefined` when it is in a PID namespace that is not visible from here. */
  readonly pid: number | undefined;
  readonly uid: number;
}

/**
 * Ensures that one proxy serves this node: two would undo each other's rules for ever (docs/adr/0014).
 *
 * The claim is the name of an abstract Unix socket. Its scope is one network namespace, to which the rules belong,
 * whatever files a container sees; and the kernel releases it when the process ends, however that happens. Neither is
 * true of a lock on a file. But any user may take the name, so only a holder that runs as root or as the proxy's own
 * user, according to the kernel, keeps a proxy from starting.
 */
export class NodeClaim {
  readonly #log: Log;
  readonly #name: string;
  #server: Server | undefined;
  /** Somebody has connected: any process of the node may. */
  onKnock: (() => void) | undefined;

  constructor(log: Log, name = NAME) {
    this.#log = log;
    this.#name = name;
  }

  /** Rejects with a sentence for the user when another proxy holds the name. Any other obstacle is only logged. */
  async take(): Promise<void> {
    for (let isLast = false; ; isLast = true) {
      try {
        this.#server = await listenAt(this.#name, () => this.onKnock?.());
        return;
      } catch (error) {
        const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
        const holder = isTaken ? await nodeHolder(this.#name) : undefined;
        if (holder !== undefined && isTrusted(holder)) {
          const stop = 'stop that one first (systemctl stop kube-userspace-proxy, or delete its Pod)';
          throw new Error(`${describe(holder)}, and two would undo each other's rules; ${stop}`);
        }
        // The holder may have ended in between.
        if (isTaken && holder === undefined && !isLast) continue;
        this.#log.warn('Cannot claim the node; a second proxy on it would go unnoticed', {
          name: `@${this.#name}`,
          ...(holder !== undefined && { pid: holder.pid, uid: holder.uid }),
          err: messageOf(error),
        });
        return;
      }
    }
  }

  /** Takes the name again after {@link close}, or from a predecessor. Any obstacle is only logged. */
  start(): void {
    if (this.#server !== undefined) return;
    this.take().catch((error: unknown) => {
      this.#log.error('Another proxy has come up on this node', { err: messageOf(error) });
    });
  }

  /** The name is free when this returns. */
  async close(): Promise<void> {
    this.#server?.close();
    this.#server = undefined;
  }
}

/** The start of a sentence. */
export function describe({ pid }: NodeHolder): string {
  const where = pid === undefined ? 'in another container' : `process ${pid}`;
  return `another kube-userspace-proxy (${where}) serves this node`;
}

/** Whether the holder may be believed to be a proxy. */
export function isTrusted({ uid }: Pick<NodeHolder, 'uid'>): boolean {
  return isOursOrRoots(uid);
}

/** `undefined` without a holder, and where system calls do not work. */
export async function nodeHolder(name = NAME): Promise<NodeHolder | undefined> {
  const sys = await import('../sys/unix-socket.ts').catch(() => undefined);
  const owner = sys?.ownerOfUnixListener(`@${name}`);
  if (owner === undefined || typeof owner === 'number') return undefined;
  return { pid: owner.pid === 0 ? undefined : owner.pid, uid: owner.uid };
}

async function listenAt(name: string, onKnock: () => void): Promise<Server> {
  const server = createServer((socket) => {
    socket.destroy();
    onKnock();
  });
  server.listen({ path: `\0${name}` });
  await once(server, 'listening');
  // Later errors concern single clients: the name is ours.
  server.on('error', () => {});
  server.unref();
  return server;
}
