import type { ReplyPath } from '../../../sys/datagram-inbox.ts';
import { DatagramOutbox } from '../../../sys/datagram-outbox.ts';
import type { EventLoop, Task } from './event-loop.ts';
import { add, type PortState } from './port-state.ts';
import { COUNTER } from './protocol.ts';

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

  constructor(loop: EventLoop) {
    this.#loop = loop;
  }

  /** How many replies of a flow it has taken from `fd` (fewer than {@link REPLIES_PER_TAKE}: all), or a negative errno. */
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

  /** Sends what has been gathered. A reply that cannot be sent is lost, as datagrams are. */
  run(): void {
    const socket = this.#socket;
    if (socket === undefined) return;
    const lost = this.#outbox.flush(socket.fd);
    if (lost > 0) add(socket.state.counters, COUNTER.limited, lost);
    this.#socket = undefined;
  }
}
