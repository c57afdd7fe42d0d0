import type { Address } from '../../../model/address.ts';
import type { OpenConnection } from '../../../model/data-plane.ts';
import type { DatagramInbox, ReplyPath } from '../../../sys/datagram-inbox.ts';
import { cannotSegment } from '../../../sys/datagram-slots.ts';
import { EPOLLET, EPOLLIN } from '../../../sys/epoll.ts';
import { allowFragments } from '../../../sys/socket.ts';
import { decodePort } from '../../../sys/socket-address.ts';
import { EAGAIN, EMSGSIZE, ENOBUFS, ENOMEM, EPERM } from '../../../sys/sys-error.ts';
import { wholeMsLeft } from '../../../util/clock.ts';
import { Deadline, type DeadlineList } from './deadlines.ts';
import type { Target } from './endpoint-table.ts';
import type { Handler, Task } from './event-loop.ts';
import { add, type PortState } from './port-state.ts';
import { COUNTER } from './protocol.ts';
import type { FlowRecord } from './records.ts';
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
  /** It passes on late answers; what the client sends next begins another flow. */
  hasRetired: boolean;
  readonly #port: UdpPort;
  readonly #path: ReplyPath;
  #silence: DeadlineList;
  #canSegment = true;

  constructor(setup: {
    readonly port: UdpPort;
    readonly target: Target;
    readonly client: string;
    readonly localKey: number | string;
    readonly clientKey: number | string;
    /** Connected, not watched yet, and the flow's from now on. */
    readonly fd: number;
    readonly path: ReplyPath;
    readonly hasReplied: boolean;
    readonly hasRetired: boolean;
  }) {
    super();
    this.#port = setup.port;
    this.target = setup.target;
    this.client = setup.client;
    this.localKey = setup.localKey;
    this.clientKey = setup.clientKey;
    this.fd = setup.fd;
    this.hasRetired = setup.hasRetired;
    this.#path = setup.path;
    // Here, and not where it is connected: a predecessor may have left it out.
    allowFragments(this.fd, this.target.family);
    this.#silence = setup.hasReplied ? setup.port.silenceAfterReply : setup.port.silenceBeforeReply;
    this.#moved();
  }

  /**
   * From the client to the endpoint: `count` datagrams of the inbox from `first` on, a run. Returns how many are dealt
   * with: none when the endpoint has refused earlier ones, and this flow is over.
   */
  send(inbox: DatagramInbox, first: number, count: number): number {
    if (count > 1 && !this.#canSegment) return this.#sendOneByOne(inbox, first, count);
    this.#moved();
    let sent = inbox.sendRun(this.fd, first, count);
    // Perhaps the error of an earlier datagram, from ICMP: then nothing of this run has been tried.
    if (sent === -EMSGSIZE) sent = inbox.sendRun(this.fd, first, count);
    if (count > 1 && cannotSegment(sent)) {
      this.#canSegment = false;
      return this.#sendOneByOne(inbox, first, count);
    }
    if (sent < 0 && !HARMS_ONE_DATAGRAM.has(-sent)) {
      this.#port.fail(this, -sent);
      return 0;
    }
    const { state } = this.#port;
    if (sent < 0) add(state.counters, COUNTER.limited, count);
    let bytes = 0;
    for (let i = first; i < first + count; i++) bytes += inbox.bytes(i);
    add(state.counters, COUNTER.receivedBytes, bytes);
    add(this.target.counters, COUNTER.receivedBytes, bytes);
    return count;
  }

  #sendOneByOne(inbox: DatagramInbox, first: number, count: number): number {
    for (let i = 0; i < count; i++) if (this.send(inbox, first + i, 1) === 0) return i;
    return count;
  }

  onEvents(): void {
    this.run();
  }

  /** Takes replies; comes back in the next turn if there may be more. */
  run(): void {
    if (this.isOver) return;
    let taken = this.#take();
    // The error of an earlier datagram, from ICMP, comes before replies.
    if (taken === -EMSGSIZE) taken = this.#take();
    if (taken < 0 && HARMS_ONE_DATAGRAM.has(-taken)) return;
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

  describe(): FlowRecord {
    const { name, control } = this.#path;
    return {
      kind: 'flow',
      port: this.#port.state.id,
      fd: this.fd,
      endpoint: this.target.endpoint,
      hasReplied: this.#silence === this.#port.silenceAfterReply,
      hasRetired: this.hasRetired,
      name: new Uint8Array(name.slice().buffer),
      control: new Uint8Array(control.slice().buffer),
    };
  }

  listing(port: PortState): OpenConnection | undefined {
    const { state } = this.#port;
    if (port !== state) return undefined;
    return {
      client: { address: this.client as Address, port: decodePort(Buffer.from(this.#path.name.buffer)) },
      endpoint: this.target.endpoint,
      state: 'flow',
      expiresMs: wholeMsLeft(this.dueMs - state.worker.loop.nowMs),
    };
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
