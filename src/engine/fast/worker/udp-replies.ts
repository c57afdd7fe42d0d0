import type { ReplyPath } from '../../../sys/datagram-inbox.ts';
import { DatagramOutbox } from '../../../sys/datagram-outbox.ts';
import type { EventLoop, Task } from './event-loop.ts';

const CAPACITY = 64;

/** Taken from one flow at a time, so that one flood of replies does not fill the whole turn. */
export const REPLIES_PER_TAKE = 16;

/** Replies leave by its socket. */
interface ReplySocket {
  readonly fd: number;
  readonly port: { count(counter: 'limited', target: undefined, amount: number): void };
}

/** Gathers the replies of many flows during a turn, and sends them with one call per listening socket. */
export class UdpReplies implements Task {
  /** By the last {@link take}. */
  takenBytes = 0;
  readonly #loop: EventLoop;
  readonly #outbox = new DatagramOutbox(CAPACITY);
  #socket: ReplySocket | undefined;

  constructor(loop: EventLoop) {
    this.#loop = loop;
  }

  /**
   * How many replies of a flow it has taken from `fd` (fewer than {@link REPLIES_PER_TAKE}: all), or a negative errno.
   */
  take({ socket, fd, path }: { socket: ReplySocket; fd: number; path: ReplyPath }): number {
    if (socket !== this.#socket || this.#outbox.room < REPLIES_PER_TAKE) this.run();
    const taken = this.#outbox.receive(fd, REPLIES_PER_TAKE);
    if (taken <= 0) return taken;
    this.takenBytes = this.#outbox.direct(taken, path);
    if (this.#socket === undefined) {
      this.#socket = socket;
      this.#loop.atEndOfTurn(this);
    }
    return taken;
  }

  /** Sends the gathered replies. A reply that cannot be sent is lost, as datagrams are. */
  run(): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    const lost = this.#outbox.flush(socket.fd);
    if (lost > 0) socket.port.count('limited', undefined, lost);
    this.#socket = undefined;
  }
}
