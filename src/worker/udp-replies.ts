import { DatagramOutbox, type ReplyPath } from '../sys/datagrams.ts';
import { EAGAIN } from '../sys/sys-error.ts';
import type { EventLoop, Task } from './event-loop.ts';
import type { PortState } from './port-state.ts';

const CAPACITY = 64;

/** Taken from one flow at a time, so that a flow in full flood does not have the whole turn. */
export const REPLIES_PER_TAKE = 16;

/** Whose socket replies leave by. */
export interface ReplySocket {
  readonly fd: number;
  readonly state: PortState;
}

/** Gathers replies of many flows during a turn, and sends them with one call per listening socket. */
export class UdpReplies implements Task {
  /** What the last {@link take} brought. */
  takenBytes = 0;
  readonly #loop: EventLoop;
  readonly #outbox = new DatagramOutbox(CAPACITY);
  #socket: ReplySocket | undefined;
  #count = 0;

  constructor(loop: EventLoop) {
    this.#loop = loop;
  }

  /** How many replies of a flow it has taken from `fd` (fewer than {@link REPLIES_PER_TAKE}: all), or a negative errno. */
  take({ socket, fd, path }: { socket: ReplySocket; fd: number; path: ReplyPath }): number {
    if (socket !== this.#socket || this.#count + REPLIES_PER_TAKE > CAPACITY) this.run();
    const first = this.#count;
    const taken = this.#outbox.receive(fd, first, first + REPLIES_PER_TAKE);
    if (taken <= 0) return taken;
    let bytes = 0;
    for (let i = first; i < first + taken; i++) {
      this.#outbox.direct(i, path);
      bytes += this.#outbox.bytes(i);
    }
    this.takenBytes = bytes;
    if (first === 0) {
      this.#socket = socket;
      this.#loop.atEndOfTurn(this);
    }
    this.#count += taken;
    return taken;
  }

  /** Sends what has been gathered. A reply that cannot be sent is lost, as datagrams are, and harms no other. */
  run(): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    for (let sent = 0; sent < this.#count; ) {
      const result = this.#outbox.send(socket.fd, sent, this.#count);
      if (result === -EAGAIN) {
        for (; sent < this.#count; sent++) socket.state.count('limited');
      } else {
        sent += Math.max(result, 1);
      }
    }
    this.#count = 0;
    this.#socket = undefined;
  }
}
