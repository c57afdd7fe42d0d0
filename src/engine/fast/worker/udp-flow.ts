import type { Ending } from '../../../model/connection-log.ts';
import type { DialFailure } from '../../../model/data-plane.ts';
import type { DatagramInbox } from '../../../sys/datagram-inbox.ts';
import { cannotSegment } from '../../../sys/datagram-slots.ts';
import { EPOLLET, EPOLLIN } from '../../../sys/epoll.ts';
import {
  allowFragments,
  SO_RCVBUF,
  SO_SNDBUF,
  SOL_SOCKET,
  type SocketOption,
  send,
  setOption,
} from '../../../sys/socket.ts';
import { describeErrno, EAGAIN, EMSGSIZE, ENOBUFS, ENOMEM, EPERM, errnoName } from '../../../sys/sys-error.ts';
import { Deadline } from '../../core/deadlines.ts';
import { add, COUNTER } from '../../core/target.ts';
import { UdpFlow as CoreUdpFlow, type FlowSetup } from '../../core/udp-flow.ts';
import { dialFailureOf } from '../../errors.ts';
import type { Task } from './event-loop.ts';
import { KEPT_PATIENCE_MS, type KeptSocket } from './kept-flow-sockets.ts';
import type { RemoteHome } from './link.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { Port } from './port.ts';
import type { FlowRecord } from './records.ts';
import type { WorkerSession } from './session.ts';
import type { Target } from './target.ts';
import type { FlowClient, Replay, Silences, UdpFlows } from './udp-flows.ts';
import { REPLIES_PER_TAKE } from './udp-replies.ts';

export const FLOW_EVENTS = EPOLLIN | EPOLLET;

/** Every path takes them whole, with headers: each link of IPv4 must take 576 bytes, and IPv6 more. */
const SMALL_BYTES = 508;

/**
 * Room for bursts, for a flow that has moved so much. The kernel limits it to `net.core.rmem_max` and `wmem_max`, and
 * reserves nothing. A flow of a few datagrams, as of most resolvers, does without two system calls.
 */
const BULK_BYTES = 32 << 10;
const BULK_OPTIONS: readonly SocketOption[] = [
  { level: SOL_SOCKET, name: SO_RCVBUF, value: 4 << 20 },
  { level: SOL_SOCKET, name: SO_SNDBUF, value: 4 << 20 },
];

/** No buffer for now, too big for the path, or dropped by a local rule: the flow and its endpoint are fine. */
const HARMS_ONE_DATAGRAM: ReadonlySet<number> = new Set([EAGAIN, ENOBUFS, ENOMEM, EMSGSIZE, EPERM]);

/**
 * Most flows of resolvers are silent by then. Some are not: the kernel soon gives their client's port to its next
 * question. Such a flow has few.
 */
const LASTING_MS = 100;
const LASTING_QUESTIONS = 16;

/** Of a resolver, for both families. The socket of a longer exchange is not used again. */
const MAX_QUESTIONS = 2;

/** How soon to look again whether the datagrams of a port are read. */
const UNREAD_MS = 10;

/** The datagrams of one client address and port, with their own socket to one endpoint, so that replies find back. */
export class UdpFlow extends CoreUdpFlow<Port, FlowClient, Replay> implements Task, WorkerSession {
  readonly target: Target;
  declare protected home: RemoteHome | undefined;
  /** Towards the endpoint. */
  readonly fd: number;
  /** The worker that goes on with it next. */
  carrier: number | undefined;
  /** It cannot have a socket of its own. */
  staysHere = false;
  protected readonly flows: UdpFlows;
  readonly #timer = new Deadline(this);
  readonly #isKept: boolean;
  /** Unless another process or worker began it. */
  readonly #keptSocket: KeptSocket | undefined;
  readonly #kind: SocketKind | undefined;
  readonly #silences: Silences;
  /** Where its client's datagrams arrive; -1 while they arrive at the listener. */
  #ownFd = -1;
  #ownSinceMs = 0;
  /** See {@link Spreading.count}. */
  #window = -1;
  #canSegment = true;
  #mayFragment = false;
  #isBulk = false;
  #questions = 0;
  #answers = 0;

  constructor(
    setup: FlowSetup<FlowClient, Replay> & {
      readonly flows: UdpFlows;
      readonly home?: RemoteHome | undefined;
      readonly target: Target;
      /** Connected, not watched yet, and the flow's from now on. */
      readonly fd: number;
      /** If the endpoint sees the client's address, and this worker has begun it. */
      readonly keptSocket?: KeptSocket | undefined;
      /** The same for one that another process or worker has begun. */
      readonly isKept?: boolean;
      /** Unless its socket cannot be used again. */
      readonly kind?: SocketKind | undefined;
      /** If another process or worker began it. */
      readonly keptUntilMs?: number | undefined;
    },
  ) {
    const { flows } = setup;
    super(flows.port, setup);
    this.target = setup.target;
    this.fd = setup.fd;
    this.flows = flows;
    this.#isKept = setup.isKept ?? setup.keptSocket !== undefined;
    this.#keptSocket = setup.keptSocket;
    this.#kind = setup.kind;
    this.#silences = flows.silences(this.#isKept);
    this.restartSilence();
    if (setup.keptUntilMs !== undefined) this.keptUntilMs = setup.keptUntilMs;
    flows.add(this, this.countsHere);
  }

  /**
   * Sends a run of `count` datagrams of the inbox, from `first` on, to the endpoint. Returns how many it handled: none
   * when the endpoint has refused earlier ones, or would see another address by now. That ends the flow.
   */
  send(inbox: DatagramInbox, first: number, count: number): number {
    // Its deadline is late: datagrams come first after a standstill, and it begins anew in another process.
    if (this.isForgotten) {
      this.cut('proxy-idle');
      return 0;
    }
    if (count > 1 && !this.#canSegment) return this.#sendOneByOne(inbox, first, count);
    this.#prepareFor(inbox.bytes(first));
    this.restartSilence();
    let sent = inbox.sendRun(this.fd, first, count);
    // This may be the error of an earlier datagram (ICMP): then the kernel has not tried this run.
    if (sent === -EMSGSIZE) sent = inbox.sendRun(this.fd, first, count);
    if (count > 1 && cannotSegment(sent)) {
      this.#canSegment = false;
      return this.#sendOneByOne(inbox, first, count);
    }
    if (sent < 0 && !HARMS_ONE_DATAGRAM.has(-sent)) {
      this.fail(-sent);
      return 0;
    }
    this.#questions += count;
    if (sent < 0) this.port.count('limited', undefined, count);
    else this.#keep(inbox, first, count);
    let bytes = 0;
    for (let i = first; i < first + count; i++) bytes += inbox.bytes(i);
    this.#received(bytes);
    return count;
  }

  /** The same for one datagram that has waited for this flow. Returns whether it handled it. */
  sendCopy(datagram: Uint8Array): boolean {
    if (this.isForgotten) {
      this.cut('proxy-idle');
      return false;
    }
    this.restartSilence();
    let sent = this.#sendBytes(datagram);
    if (sent === -EMSGSIZE) sent = this.#sendBytes(datagram);
    if (sent < 0 && !HARMS_ONE_DATAGRAM.has(-sent)) {
      this.fail(-sent);
      return false;
    }
    this.#questions++;
    const replay = sent < 0 ? undefined : this.#replayOfNext();
    if (sent < 0) this.port.count('limited');
    else if (replay?.hasRoomFor(datagram.length)) replay.keep(datagram);
    this.#received(datagram.length);
    return true;
  }

  resend(datagram: Uint8Array): void {
    const sent = this.#sendBytes(datagram);
    this.#questions++;
    if (sent < 0 && !HARMS_ONE_DATAGRAM.has(-sent)) this.fail(-sent);
    else add(this.target.counters, COUNTER.receivedBytes, datagram.length);
  }

  onEvents(_events: number, fd: number): void {
    if (fd === this.fd) this.run();
    else this.takeQuestions();
  }

  /** Takes what has come to its own socket. */
  takeQuestions(): void {
    const { catchUp, datagramBudget, inbox } = this.port.worker;
    // An error is of a reply that its client has refused.
    const count = inbox.receive(this.#ownFd, Math.min(inbox.capacity, datagramBudget.portion()));
    this.noteActive();
    catchUp();
    for (let i = 0; i < count; ) {
      const sent = this.#ownFd < 0 ? 0 : this.send(inbox, i, inbox.run(i, count));
      i += sent;
      if (sent > 0) continue;
      // It has ended, or gets no more.
      this.flows.host.bring(this.from, copies(inbox, i, count));
      return;
    }
  }

  /** Takes replies; goes on in the next turn if there may be more. */
  run(): void {
    if (this.isOver) return;
    let taken = this.#take();
    // The error of an earlier datagram (ICMP) comes before replies.
    if (taken === -EMSGSIZE) taken = this.#take();
    if (taken < 0 && HARMS_ONE_DATAGRAM.has(-taken)) return;
    if (taken < 0) {
      // Answers from before the endpoint went still count.
      this.#take();
      this.fail(-taken);
    } else if (taken === REPLIES_PER_TAKE) {
      this.port.worker.loop.inNextTurn(this);
    }
  }

  /** Whether it may go on in another worker, which cannot ask another endpoint, and whether that is worth while. */
  get mayMove(): boolean {
    if (this.hasRetired || this.staysHere || this.port.udpReplayMs !== undefined || this.replay?.isOver === false)
      return false;
    // More of its datagrams can be expected.
    if (this.#questions >= LASTING_QUESTIONS && this.ageMs >= LASTING_MS) return true;
    return this.port.worker.spreading.isEager;
  }

  /** Whether it has a socket of its own for so long that no datagram of another client is on its way there. */
  get isApart(): boolean {
    const { loop, spreading } = this.port.worker;
    return this.#ownFd >= 0 && (spreading.isEager || loop.nowMs - this.#ownSinceMs >= LASTING_MS);
  }

  get hasOwnSocket(): boolean {
    return this.#ownFd >= 0;
  }

  noteActive(): void {
    this.#window = this.port.worker.spreading.count(this.#window);
  }

  /** Its client's datagrams arrive there from now on. Throws a SysError when it cannot be watched. */
  useSocket(fd: number): void {
    const { loop, shares } = this.port.worker;
    this.#ownFd = fd;
    this.#ownSinceMs = loop.nowMs;
    if (this.countsHere) shares.descriptors.take(1, this.port.share);
    this.flows.host.watchSocket(this, fd);
  }

  /** They arrive at the listener again. */
  releaseSocket(): void {
    const fd = this.#ownFd;
    if (fd < 0) return;
    this.#ownFd = -1;
    if (this.countsHere) this.port.worker.shares.descriptors.give(1, this.port.share);
    this.flows.host.releaseSocket(this, fd);
  }

  record(): FlowRecord {
    const { loop } = this.port.worker;
    const unanswered = this.replay?.datagramsOf(this);
    return {
      ...this.account(),
      kind: 'flow',
      port: this.port.id,
      ...this.from.describe(),
      fd: this.fd,
      endpoint: this.target.endpoint,
      hasReplied: this.hasReplied,
      ...this.bytes(),
      hasRetired: this.hasRetired,
      ...(this.#isKept && { keptUntil: loop.clock.wallNow() + this.keptUntilMs - loop.nowMs }),
      ...(unanswered && { unanswered }),
      ...(this.#ownFd >= 0 && { ownFd: this.#ownFd }),
    };
  }

  /** It goes on in another worker, with both sockets, and counts as before. */
  depart(): FlowRecord {
    const { loop } = this.port.worker;
    // It is over.
    this.replay = undefined;
    const record = this.record();
    this.detach();
    for (const fd of [this.fd, this.#ownFd]) loop.unwatch(fd);
    this.flows.table.delete(this);
    return record;
  }

  override stay(): void {
    super.stay();
    const { flows, descriptors } = this.port.worker.shares;
    flows.take(1, this.port.share);
    if (this.#ownFd >= 0) descriptors.take(1, this.port.share);
  }

  onShutdown(): void {
    this.cut('proxy-shutdown');
  }

  onDue(): void {
    const { loop } = this.port.worker;
    const { host } = this.flows;
    // After a standstill what came in time may still be there.
    if (this.#ownFd >= 0) host.readSocket(this, this.#ownFd);
    if (this.isOver || this.#timer.isWaiting) return;
    if (host.mayHaveUnread) loop.deadlines.after(UNREAD_MS).start(this.#timer, loop.nowMs);
    else this.cut('proxy-idle');
  }

  fail(errno: number): void {
    this.failed(dialFailureOf(errnoName(errno)), describeErrno(errno));
  }

  protected get leftMs(): number {
    return this.#timer.dueMs - this.port.worker.loop.nowMs;
  }

  protected restartSilence(): void {
    const { worker } = this.port;
    const { nowMs } = worker.loop;
    const { beforeReply, afterReply } = this.#silences;
    (this.hasReplied ? afterReply : beforeReply).start(this.#timer, nowMs);
    if (this.#isKept) this.keptUntilMs = nowMs + worker.keptDials.longestSilenceMs(nowMs);
  }

  protected override detach(): void {
    super.detach();
    this.#timer.cancel();
  }

  protected release(ending: Ending, reason: DialFailure | undefined): void {
    // Nobody gets what waits there.
    if (ending === 'proxy-shutdown' || ending === 'proxy-removed') this.#closeSocket();
    this.releaseSocket();
    this.#releaseBackend(ending);
    this.home?.over(reason === undefined ? { kind: 'ended' } : { kind: 'flow-failed', reason });
  }

  #closeSocket(): void {
    if (this.#ownFd < 0) return;
    this.port.worker.loop.close(this.#ownFd);
    this.#ownFd = -1;
    if (this.countsHere) this.port.worker.shares.descriptors.give(1, this.port.share);
  }

  #releaseBackend(ending: Ending): void {
    const { worker } = this.port;
    if (this.#keptSocket !== undefined) {
      if (ending === 'proxy-idle' && this.#isSettled) worker.keptFlowSockets.park(this.#keptSocket);
      else worker.keptFlowSockets.end(this.#keptSocket);
      return;
    }
    if (this.#isKept) worker.keptDials.forget('UDP', this.fd, this.target.endpoint);
    worker.endpointSockets.parkUdp(this.fd, this.#kind);
  }

  /** Nothing more is to be expected, as when a resolver has its answers; and its entry lasts until another flow's. */
  get #isSettled(): boolean {
    const { nowMs } = this.port.worker.loop;
    const isAnswered = this.#answers === this.#questions && this.#questions <= MAX_QUESTIONS;
    return isAnswered && nowMs + KEPT_PATIENCE_MS < this.keptUntilMs;
  }

  #sendBytes(datagram: Uint8Array): number {
    const { scratch } = this.port.worker;
    this.#prepareFor(datagram.length);
    scratch.bytes.set(datagram);
    return send(this.fd, scratch, 0, datagram.length);
  }

  #received(bytes: number): void {
    this.receivedBytes += bytes;
    add(this.port.counters, COUNTER.receivedBytes, bytes);
    add(this.target.counters, COUNTER.receivedBytes, bytes);
  }

  /** What its client has sent just now may be sent to another endpoint. */
  #keep(inbox: DatagramInbox, first: number, count: number): void {
    const replay = this.#replayOfNext();
    if (replay === undefined) return;
    for (let i = first; i < first + count; i++) if (replay.hasRoomFor(inbox.bytes(i))) replay.keep(inbox.copy(i));
  }

  #replayOfNext(): Replay | undefined {
    const replay = this.flows.replayOfNext(this);
    replay?.wasSent(this.port.worker.nowMs);
    return replay;
  }

  #sendOneByOne(inbox: DatagramInbox, first: number, count: number): number {
    for (let i = 0; i < count; i++) if (this.send(inbox, first + i, 1) === 0) return i;
    return count;
  }

  #take(): number {
    const { replies } = this.port.worker;
    const taken = replies.take({ socket: this.flows.host, fd: this.fd, path: this.from.path });
    if (taken > 0) {
      this.#answers += taken;
      this.answered(taken, replies.takenBytes);
      this.restartSilence();
      this.#growIfBulk();
    }
    return taken;
  }

  /** Sets what small flows can do without. */
  #prepareFor(bytes: number): void {
    if (bytes > SMALL_BYTES && !this.#mayFragment) {
      this.#mayFragment = true;
      allowFragments(this.fd, this.target.family);
    }
    this.#growIfBulk();
  }

  #growIfBulk(): void {
    if (this.#isBulk || this.receivedBytes + this.sentBytes <= BULK_BYTES) return;
    this.#isBulk = true;
    for (const option of BULK_OPTIONS) setOption(this.fd, option);
  }
}

/** Datagrams from `first` to `end` - 1. */
export function copies(inbox: DatagramInbox, first: number, end: number): readonly Uint8Array[] {
  return Array.from({ length: end - first }, (_, i) => inbox.copy(first + i));
}
