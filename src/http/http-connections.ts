import type { IncomingMessage } from 'node:http';

type Socket = IncomingMessage['socket'];

/**
 * Nobody asks for more before he has an answer, but for one who has seen all of it before we know that. Without a bound,
 * Node keeps every request that a client writes, and we would begin to answer each.
 */
const MAX_REQUESTS = 4;

/**
 * The connections of one server, so many at most. For a new one, that which has been waiting for a request for the
 * longest is closed: whoever holds connections without asking keeps nobody out, least of all a kubelet or a load
 * balancer, which ask at once. When all are being answered, the new one is closed.
 */
export class HttpConnections {
  readonly #max: number;
  /** Requests under way. Those without any come in the order in which they began to wait. */
  readonly #requests = new Map<Socket, number>();

  constructor(max: number) {
    this.#max = max;
  }

  opened(socket: Socket): void {
    socket.on('close', () => this.#requests.delete(socket));
    if (this.#requests.size >= this.#max) {
      const victim = this.#longestWaiting() ?? socket;
      this.#requests.delete(victim);
      victim.destroy();
      if (victim === socket) return;
    }
    this.#requests.set(socket, 0);
  }

  /** `false`: there are too many, and the connection is closed. */
  requested(socket: Socket): boolean {
    const requests = this.#requests.get(socket);
    if (requests === undefined) return false;
    this.#requests.set(socket, requests + 1);
    if (requests < MAX_REQUESTS) return true;
    socket.destroy();
    return false;
  }

  answered(socket: Socket): void {
    const requests = this.#requests.get(socket);
    if (requests === undefined) return;
    this.#requests.delete(socket);
    this.#requests.set(socket, requests - 1);
  }

  #longestWaiting(): Socket | undefined {
    for (const [socket, requests] of this.#requests) if (requests === 0) return socket;
    return undefined;
  }
}
