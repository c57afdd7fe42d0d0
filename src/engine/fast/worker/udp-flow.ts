import type { Address } from '../../../model/address.ts';
import type { Ending } from '../../../model/connection-log.ts';
import type { DialFailure, OpenConnection } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { type DatagramInbox, keysOf, type ReplyPath } from '../../../sys/datagram-inbox.ts';
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
import { portIn } from '../../../sys/socket-address.ts';
import { EAGAIN, EMSGSIZE, ENOBUFS, ENOMEM, EPERM, errnoName } from '../../../sys/sys-error.ts';
import { wholeMsLeft } from '../../../util/clock.ts';
import type { DeadlineList } from '../../core/deadlines.ts';
import { add, COUNTER } from '../../core/target.ts';
import { dialFailureOf } from '../../errors.ts';
import type { Task } from './event-loop.ts';
import type { FlowTable } from './flow-table.ts';
import { KEPT_PATIENCE_MS, type KeptSocket } from './kept-flow-sockets.ts';
import type { Errand, FlowClient, Link, PassId } from './link.ts';
import type { Listener } from './listener.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { FlowRecord } from './records.ts';
import { Session } from './session.ts';
import type { Target } from './target.ts';
import { type Asking, UdpReplay } from './udp-replay.ts';
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

/** Clients reach the flows through its socket, and replies leave by it. */
export interface FlowOwner extends Pick<Listener, 'fd' | 'port'>, Asking {
  readonly flows: FlowTable<UdpFlow>;
  readonly mayHaveUnread: boolean;
  silences(isKept: boolean): Silences;
  /** Tells the client that nobody gets its datagram. */
  refuse(path: ReplyPath): void;
}

/** How soon to look again whether the datagrams of a port are read. */
const UNREAD_MS = 10;

/** What ends flows of one kind. */
export interface Silences {
  readonly beforeReply: DeadlineList;
  readonly afterReply: DeadlineList;
}

/** The datagrams of one client address and port, with their own socket to one endpoint, so that replies find back. */
export class UdpFlow extends Session implements Task {
  readonly target: Target;
  readonly #clientAddress: Address;
  readonly localKey: number | string;
  readonly clientKey: number | string;
  hasRetired: boolean;
  readonly #owner: FlowOwner;
  readonly #path: ReplyPath;
  readonly #isKept: boolean;
  /** Unless another process or worker began it. */
  readonly #keptSocket: KeptSocket | undefined;
  readonly #kind: SocketKind | undefined;
  /** Without a datagram, its entry in connection tracking may end then. Infinity where there is none. */
  #keptUntilMs = Number.POSITIVE_INFINITY;
  readonly #silences: Silences;
  #silence: DeadlineList;
  #canSegment = true;
  #mayFragment = false;
  #isBulk = false;
  /** While nobody has answered. */
  #replay: UdpReplay | undefined;
  #receivedBytes: number;
  #sentBytes: number;
  #questions = 0;
  #answers = 0;

  constructor(setup: {
    readonly owner: FlowOwner;
    readonly target: Target;
    readonly client: Address;
    /** Connected, not watched yet, and the flow's from now on. */
    readonly fd: number;
    readonly path: ReplyPath;
    readonly replay?: UdpReplay | undefined;
    readonly errand?: Errand | undefined;
    readonly hasReplied?: boolean;
    readonly hasRetired?: boolean;
    /** If the endpoint sees the client's address, and this worker has begun it. */
    readonly keptSocket?: KeptSocket | undefined;
    /** The same for one that another process or worker has begun. */
    readonly isKept?: boolean;
    /** Unless its socket cannot be used again. */
    readonly kind?: SocketKind | undefined;
    /** If another process began it. */
    readonly keptUntilMs?: number | undefined;
    readonly receivedBytes?: number;
    readonly sentBytes?: number;
  }) {
    const { owner, target, client, fd, path, replay, hasReplied = false, hasRetired = false } = setup;
    super(owner.port, fd, setup.errand);
    this.target = target;
    this.#clientAddress = client;
    this.#receivedBytes = setup.receivedBytes ?? 0;
    this.#sentBytes = setup.sentBytes ?? 0;
    const keys = keysOf(path);
    this.localKey = keys.local;
    this.clientKey = keys.client;
    this.hasRetired = hasRetired;
    this.#owner = owner;
    this.#path = path;
    this.#replay = replay;
    this.#isKept = setup.isKept ?? setup.keptSocket !== undefined;
    this.#keptSocket = setup.keptSocket;
    this.#kind = setup.kind;
    this.#silences = owner.silences(this.#isKept);
    this.#silence = hasReplied ? this.#silences.afterReply : this.#silences.beforeReply;
    this.#moved();
    if (setup.keptUntilMs !== undefined) this.#keptUntilMs = setup.keptUntilMs;
    owner.flows.add(this);
    if (this.countsHere) owner.port.worker.shares.flows.take(1, owner.port.share);
  }

  /**
   * Sends a run of `count` datagrams of the inbox, from `first` on, to the endpoint. Returns how many it handled: none
   * when the endpoint has refused earlier ones, or would see another address by now. That ends the flow.
   */
  send(inbox: DatagramInbox, first: number, count: number): number {
    // Its deadline is late: datagrams come first after a standstill, and it begins anew in another process.
    if (this.port.worker.loop.nowMs >= this.#keptUntilMs) {
      this.cut('proxy-idle');
      return 0;
    }
    if (count > 1 && !this.#canSegment) return this.#sendOneByOne(inbox, first, count);
    this.#prepareFor(inbox.bytes(first));
    this.#moved();
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
    else this.#replayOfNext()?.keep(inbox, first, count);
    let bytes = 0;
    for (let i = first; i < first + count; i++) bytes += inbox.bytes(i);
    this.#received(bytes);
    return count;
  }

  /** The same for one datagram that has waited for this flow. Returns whether it handled it. */
  sendCopy(datagram: Uint8Array): boolean {
    if (this.port.worker.loop.nowMs >= this.#keptUntilMs) {
      this.cut('proxy-idle');
      return false;
    }
    this.#moved();
    let sent = this.#sendBytes(datagram);
    if (sent === -EMSGSIZE) sent = this.#sendBytes(datagram);
    if (sent < 0 && !HARMS_ONE_DATAGRAM.has(-sent)) {
      this.fail(-sent);
      return false;
    }
    this.#questions++;
    if (sent < 0) this.port.count('limited');
    else this.#replayOfNext()?.keepCopy(datagram);
    this.#received(datagram.length);
    return true;
  }

  /** Sends what the client has sent before and another endpoint has not answered. */
  resend(datagram: Uint8Array): void {
    const sent = this.#sendBytes(datagram);
    this.#questions++;
    if (sent < 0 && !HARMS_ONE_DATAGRAM.has(-sent)) this.fail(-sent);
    else add(this.target.counters, COUNTER.receivedBytes, datagram.length);
  }

  onEvents(): void {
    this.run();
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

  /** Whether more of its datagrams can be expected. */
  get isLasting(): boolean {
    return this.#questions >= LASTING_QUESTIONS && this.ageMs >= LASTING_MS;
  }

  record(): FlowRecord {
    const { loop } = this.port.worker;
    const unanswered = this.#replay?.datagramsOf(this);
    return {
      ...this.account(),
      kind: 'flow',
      ...this.#way(),
      fd: this.fd,
      endpoint: this.target.endpoint,
      hasReplied: this.#silence === this.#silences.afterReply,
      ...this.bytes(),
      hasRetired: this.hasRetired,
      ...(this.#isKept && { keptUntil: loop.clock.wallNow() + this.#keptUntilMs - loop.nowMs }),
      ...(unanswered && { unanswered }),
    };
  }

  /** It goes on in another worker, and still counts against the limits. */
  depart(): { readonly record: FlowRecord; readonly replay: UdpReplay | undefined } {
    const record = this.record();
    const replay = record.unanswered && this.#replay;
    this.#replay = undefined;
    this.detach();
    this.port.worker.loop.unwatch(this.fd);
    this.#owner.flows.delete(this);
    return { record, replay };
  }

  /** If it has a home elsewhere, which has not died. */
  goHome({ hasRetired, isSilent }: { readonly hasRetired: boolean; readonly isSilent: boolean }): boolean {
    const { errand } = this;
    if (errand === undefined || !errand.isHomeThere) return false;
    const { record, replay } = this.depart();
    replay?.ended(this);
    errand.over({ kind: 'flow-back', record: { ...record, hasRetired }, isSilent });
    return true;
  }

  isOn(link: Link, id: PassId): boolean {
    return this.errand?.is(link, id) ?? false;
  }

  override stay(): void {
    super.stay();
    this.port.worker.shares.flows.take(1, this.port.share);
  }

  describe(): OpenConnection {
    return {
      client: this.client(),
      endpoint: this.target.endpoint,
      state: 'flow',
      expiresMs: wholeMsLeft(this.timer.dueMs - this.port.worker.loop.nowMs),
    };
  }

  onDue(): void {
    const { loop } = this.port.worker;
    if (this.#owner.mayHaveUnread) loop.deadlines.after(UNREAD_MS).start(this.timer, loop.nowMs);
    else this.cut('proxy-idle');
  }

  fail(errno: number): void {
    const [replay, errand] = [this.#replay, this.errand];
    const reason = dialFailureOf(errnoName(errno));
    this.#replay = undefined;
    if (!this.isOver) this.tries.fail(this.target.name, reason);
    this.#end('backend-error', (home) => this.#leaveToHome(home, reason, replay));
    const isEndpoint = this.port.flowFailed(this.target, this.#clientAddress, errno);
    if (errand !== undefined) return;
    if (!isEndpoint) replay?.ended(this);
    else if (replay?.endedInVain(this) !== true && !this.hasRetired) this.#owner.refuse(this.#path);
  }

  /** Its endpoint has gone. Another one is asked, where the Service wants that of silent ones. */
  leave(): void {
    const replay = this.port.udpReplayMs === undefined ? undefined : this.#replay;
    const { errand } = this;
    if (replay !== undefined) this.#replay = undefined;
    this.#end('proxy-drain', (home) => this.#leaveToHome(home, undefined, replay));
    if (errand === undefined) replay?.endedInVain(this);
  }

  /** If it fails, another endpoint gets these, which another process has sent. */
  keepUnanswered(datagrams: readonly Uint8Array[], replay?: UdpReplay): void {
    if (replay !== undefined) {
      this.#replay = replay;
      replay.rejoin(this, datagrams);
      return;
    }
    this.#replay = new UdpReplay({ asking: this.#owner, client: this.#clientAddress, path: this.#path });
    this.#replay.follow(this, datagrams);
  }

  cut(ending: Ending): void {
    this.#end(ending, (home) => home.over({ kind: 'ended' }));
  }

  /** `tell`: its home, if that is another worker. */
  #end(ending: Ending, tell: (home: Errand) => void): void {
    if (!this.finish(ending)) return;
    this.#replay?.ended(this);
    this.#owner.flows.delete(this);
    const { worker } = this.port;
    this.#releaseSocket(ending);
    if (this.errand === undefined) worker.shares.flows.give(1, this.port.share);
    else tell(this.errand);
  }

  #releaseSocket(ending: Ending): void {
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
    return isAnswered && nowMs + KEPT_PATIENCE_MS < this.#keptUntilMs;
  }

  #leaveToHome(home: Errand, reason: DialFailure | undefined, replay: UdpReplay | undefined): void {
    home.over({ kind: 'flow-failed', client: this.#way(), reason, unanswered: replay?.datagramsOf(this) });
    replay?.ended(this);
  }

  #way(): FlowClient {
    const { name, control } = this.#path;
    return {
      port: this.port.id,
      name: new Uint8Array(name.slice().buffer),
      control: new Uint8Array(control.slice().buffer),
    };
  }

  #sendBytes(datagram: Uint8Array): number {
    const { scratch } = this.port.worker;
    this.#prepareFor(datagram.length);
    scratch.bytes.set(datagram);
    return send(this.fd, scratch, 0, datagram.length);
  }

  #received(bytes: number): void {
    this.#receivedBytes += bytes;
    add(this.port.counters, COUNTER.receivedBytes, bytes);
    add(this.target.counters, COUNTER.receivedBytes, bytes);
  }

  /** It keeps what the client has sent just now. */
  #replayOfNext(): UdpReplay | undefined {
    // After an answer only where questions can be asked twice: elsewhere, and in bulk, it would cost a copy of all.
    if (this.#replay === undefined && this.port.udpReplayMs !== undefined) {
      this.keepUnanswered([]);
      this.#silence = this.#silences.beforeReply;
      this.#moved();
    }
    return this.#replay;
  }

  protected client(): Endpoint {
    return clientOf(this.#path, this.#clientAddress);
  }

  protected bytes() {
    return { receivedBytes: this.#receivedBytes, sentBytes: this.#sentBytes };
  }

  #sendOneByOne(inbox: DatagramInbox, first: number, count: number): number {
    for (let i = 0; i < count; i++) if (this.send(inbox, first + i, 1) === 0) return i;
    return count;
  }

  #take(): number {
    const { replies } = this.port.worker;
    const taken = replies.take({ socket: this.#owner, fd: this.fd, path: this.#path });
    if (taken > 0) {
      this.#answers += taken;
      if (this.#silence !== this.#silences.afterReply) {
        this.errand?.answered();
        this.port.answered(this.target);
      }
      this.#silence = this.#silences.afterReply;
      if (this.#replay?.answered(taken)) this.#replay = undefined;
      this.#moved();
      this.#sentBytes += replies.takenBytes;
      this.#growIfBulk();
      add(this.port.counters, COUNTER.sentBytes, replies.takenBytes);
      add(this.target.counters, COUNTER.sentBytes, replies.takenBytes);
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
    if (this.#isBulk || this.#receivedBytes + this.#sentBytes <= BULK_BYTES) return;
    this.#isBulk = true;
    for (const option of BULK_OPTIONS) setOption(this.fd, option);
  }

  #moved(): void {
    const { worker } = this.port;
    const { nowMs } = worker.loop;
    this.#silence.start(this.timer, nowMs);
    if (this.#isKept) this.#keptUntilMs = nowMs + worker.keptDials.longestSilenceMs(nowMs);
  }
}

/** The client that replies on this path go to. */
export function clientOf({ name }: ReplyPath, address: Address): Endpoint {
  return { address, port: portIn(name) };
}
