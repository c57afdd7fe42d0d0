import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';

/** Of an abstract Unix socket. */
const NAME = 'kube-userspace-proxy';
const ROOT = 0;

/** Who proxies in this network namespace. */
export interface NodeHolder {
  /** `undefined` when it is in a PID namespace that cannot be seen from here. */
  readonly pid: number | undefined;
  readonly uid: number;
}

/**
 * That one proxy, and no other, serves this node: two would put back each other's rules for ever.
 *
 * It is the name of an abstract Unix socket, for that has the extent of what it guards: one network namespace, to which
 * the rules belong, whatever files a container sees; and the kernel gives it back when the process ends, however it does.
 * A lock on a file has neither. Any user may take the name, though, so only root's word (or that of the proxy's own
 * user), which the kernel gives, keeps a proxy from starting.
 */
export class NodeClaim {
  readonly #log: Log;
  readonly #name: string;
  #server: Server | undefined;

  constructor(log: Log, name = NAME) {
    this.#log = log;
    this.#name = name;
  }

  /** Rejects with a sentence for the user when another proxy has it. Whatever else is in the way is only told of. */
  async take(): Promise<void> {
    for (let isLast = false; ; isLast = true) {
      try {
        this.#server = await listenAt(this.#name);
        return;
      } catch (error) {
        const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
        const holder = isTaken ? await nodeHolder(this.#name) : undefined;
        if (holder !== undefined && isTrusted(holder)) {
          throw new Error(
            `${describe(holder)}, and two would undo each other's rules; stop that one first (systemctl stop kube-userspace-proxy, or delete its Pod)`,
          );
        }
        // It may have ended in between.
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

  /** Takes it again after {@link close}, from a predecessor too. What is in the way is only told of. */
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
  return `another kube-userspace-proxy (${pid === undefined ? 'in another container' : `process ${pid}`}) serves this node`;
}

/** Whether it can be believed to be a proxy. */
export function isTrusted({ uid }: NodeHolder): boolean {
  return uid === ROOT || uid === process.getuid?.();
}

/** `undefined` also where the kernel cannot be asked, for want of koffi. */
export async function nodeHolder(name = NAME): Promise<NodeHolder | undefined> {
  // Only here, as the portable engine runs without koffi.
  const sys = await import('../sys/unix-socket.ts').catch(() => undefined);
  const owner = sys?.ownerOfUnixListener(`@${name}`);
  if (owner === undefined || typeof owner === 'number') return undefined;
  return { pid: owner.pid === 0 ? undefined : owner.pid, uid: owner.uid };
}

async function listenAt(name: string): Promise<Server> {
  const server = createServer((socket) => socket.destroy());
  server.listen({ path: `\0${name}` });
  await once(server, 'listening');
  // What fails later is a client's matter: the name is ours.
  server.on('error', () => {});
  server.unref();
  return server;
}
