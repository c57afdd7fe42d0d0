import type { ReplyPath } from '../sys/datagrams.ts';
import { EPOLLET, EPOLLIN } from '../sys/epoll.ts';
import type { Memory } from '../sys/memory.ts';
import { send } from '../sys/socket.ts';
import { EAGAIN, EMSGSIZE, ENOBUFS, ENOMEM, EPERM } from '../sys/sys-error.ts';
import { Deadline, type DeadlineList } from './deadlines.ts';
import type { Target } from './endpoint-table.ts';
import type { Handler, Task } from './event-loop.ts';
import { add } from './port-state.ts';
import { COUNTER } from './protocol.ts';
import type { UdpPort } from './udp-port.ts';
import { REPLIES_PER_TAKE } from './udp-replies.ts';

export const FLOW_EVENTS = EPOLLIN | EPOLLET;

/** No buffer for now, too big for the path, held back by a local rule: the flow and its endpoint are sound. */
const HARMS_ONE_DATAGRAM: ReadonlySet<number> = new Set([EAGAIN, ENOBUFS, ENOMEM, EMSGSIZE, EPERM]);

/** One client address and port, as one endpoint sees it: a connected socket of its own, so that replies find back. */
export class UdpFlow extends Deadline implements Handler, Task {
  readonly target: Target;
  readonly client: string;
  readonly localKey: number | string;
  readonly clientKey: number | string;
  readonly fd: number;
  isOver = false;
  readonly #port: UdpPort;
  readonly #path: ReplyPath;
  #silence: DeadlineList;

  constructor(setup: {
    readonly port: UdpPort;
    readonly target: Target;
    readonly client: string;
    readonly localKey: number | string;
    readonly clientKey: number | string;
    /** Connected, not watched yet, and the flow's from now on. */
    readonly fd: number;
    readonly path: ReplyPath;
  }) {
    super();
    this.#port = setup.port;
    this.target = setup.target;
    this.client = setup.client;
    this.localKey = setup.localKey;
    this.clientKey = setup.clientKey;
    this.fd = setup.fd;
    this.#path = setup.path;
    this.#silence = setup.port.silenceBeforeReply;
    this.#moved();
  }

  /** From the client to the endpoint. False when the endpoint has refused an earlier one: this flow is over. */
  send(memory: Memory, offset: number, bytes: number): boolean {
    this.#moved();
    const sent = send(this.fd, memory, offset, bytes);
    if (sent < 0) {
      if (!HARMS_ONE_DATAGRAM.has(-sent)) {
        this.#port.fail(this, -sent);
        return false;
      }
      this.#port.state.count('limited');
    }
    add(this.#port.state.counters, COUNTER.receivedBytes, bytes);
    add(this.target.counters, COUNTER.receivedBytes, bytes);
    return true;
  }

  onEvents(): void {
    this.run();
  }

  /** Takes replies; comes back in the next turn if there may be more. */
  run(): void {
    if (this.isOver) return;
    const taken = this.#take();
    if (taken === -EAGAIN) return;
    if (taken < 0) {
      // What had been answered before the endpoint went still counts.
      this.#take();
      this.#port.fail(this, -taken);
    } else if (taken === REPLIES_PER_TAKE) {
      this.#port.state.worker.loop.inNextTurn(this);
    }
  }

  onShutdown(): void {
    this.#port.end(this);
  }

  onDue(): void {
    this.#port.end(this);
  }

  #take(): number {
    const { replies } = this.#port.state.worker.udp;
    const taken = replies.take({ socket: this.#port, fd: this.fd, path: this.#path });
    if (taken > 0) {
      this.#silence = this.#port.silenceAfterReply;
      this.#moved();
      add(this.#port.state.counters, COUNTER.sentBytes, replies.takenBytes);
      add(this.target.counters, COUNTER.sentBytes, replies.takenBytes);
    }
    return taken;
  }

  #moved(): void {
    this.#silence.start(this, this.#port.state.worker.loop.nowMs);
  }
}
