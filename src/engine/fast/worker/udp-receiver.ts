import type { Address } from '../../../model/address.ts';
import { putLocalAddress, type ReplyPath } from '../../../sys/datagram-inbox.ts';
import { EPOLLIN } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import { sendPortUnreachable } from '../../../sys/port-unreachable.ts';
import { getsockname, SOCKET_ADDRESS_BYTES } from '../../../sys/socket.ts';
import { addressIn } from '../../../sys/socket-address.ts';
import { EAGAIN, must } from '../../../sys/sys-error.ts';
import { FlowTable } from './flow-table.ts';
import type { Errand, FlowClient } from './link.ts';
import { Listener } from './listener.ts';
import type { Port } from './port.ts';
import type { CountedBackends } from './protocol.ts';
import type { FlowRecord, WaitingRecord } from './records.ts';
import type { Target } from './target.ts';
import { FLOW_EVENTS, type FlowOwner, type Silences, UdpFlow } from './udp-flow.ts';
import type { UdpReplay } from './udp-replay.ts';
import { WaitingClients } from './waiting-clients.ts';

const [localName, clientName] = [new Memory(SOCKET_ADDRESS_BYTES), new Memory(SOCKET_ADDRESS_BYTES)];
const [localNameWords, clientNameWords] = [localName.words(), clientName.words()];

/**
 * So many datagrams are read without an end until flows of the port end nevertheless. After a standstill the kernel's
 * queue holds less; a flood never ends.
 */
const MAX_UNREAD = 12_800;

/** So many endpoints may refuse one after the other until datagrams are lost. */
const MAX_REFUSALS = 8;

/** Receives datagrams of one Service port's clients, and gives each to its flow. */
export abstract class UdpReceiver extends Listener implements FlowOwner {
  readonly flows = new FlowTable<UdpFlow>();
  protected readonly waiting: WaitingClients;
  protected isClosed = false;
  readonly #moreFds: readonly number[];
  readonly #silences: Silences;
  /** Sockets whose last read was full. */
  readonly #unread = new Set<number>();
  #readSince = 0;
  /** Of flows whose entries in connection tracking end after so much silence. */
  #ofKept: { readonly longestMs: number; readonly silences: Silences } | undefined;

  /** `moreFds`: further sockets at the same address and port. Throws a SysError when one cannot be watched. */
  constructor(port: Port, fd: number, moreFds: readonly number[] = []) {
    super(port, fd);
    this.waiting = new WaitingClients(port);
    this.#moreFds = moreFds;
    const { loop } = port.worker;
    for (const [index, more] of moreFds.entries()) {
      const status = loop.watch(more, EPOLLIN, this);
      if (status === 0) continue;
      for (const watched of [fd, ...moreFds.slice(0, index)]) loop.unwatch(watched);
      must('epoll_ctl', status);
    }
    this.#silences = this.#atMost(Number.POSITIVE_INFINITY);
  }

  abstract ask(replay: UdpReplay): UdpFlow | undefined;

  abstract retire(flow: UdpFlow): void;

  protected delivered(_flow: UdpFlow): void {}

  /** A flow for this client, which has none; `undefined` when it gets none, or none yet: then the datagram waits. */
  protected abstract begin(path: ReplyPath, datagram: () => Uint8Array): UdpFlow | undefined;

  refuse(path: ReplyPath): void {
    const { loop, refusals } = this.port.worker;
    if (!refusals.tryTake(this.port, loop.nowMs) || getsockname(this.fd, localName) < 0) return;
    putLocalAddress(path, localNameWords);
    clientNameWords.set(path.name);
    sendPortUnreachable(clientName, localName);
  }

  silences(isKept: boolean): Silences {
    if (!isKept) return this.#silences;
    const { loop, keptDials } = this.port.worker;
    const longestMs = keptDials.longestSilenceMs(loop.nowMs);
    if (this.#ofKept?.longestMs !== longestMs) this.#ofKept = { longestMs, silences: this.#atMost(longestMs) };
    return this.#ofKept.silences;
  }

  /** A datagram that came in time to a flow of this port may wait in the kernel. */
  get mayHaveUnread(): boolean {
    return this.#readSince > 0 && this.#readSince < MAX_UNREAD;
  }

  override update(backends: CountedBackends): void {
    super.update(backends);
    for (const flow of this.flows) {
      if (!this.port.has(flow.target)) flow.leave();
      else if (flow.target.position < 0) this.retire(flow);
    }
  }

  /** Ends the flows. */
  close(): boolean {
    const { loop, replies } = this.port.worker;
    this.isClosed = true;
    for (const flow of this.flows) flow.cut('proxy-removed');
    for (const { path } of this.waiting) this.waiting.take(path);
    // Gathered replies leave by the socket that closes.
    replies.run();
    this.retry.cancel();
    for (const fd of this.#fds()) loop.unwatch(fd);
    return true;
  }

  onEvents(_events: number, fd: number): void {
    const { catchUp, datagramShare, inbox } = this.port.worker;
    const atMost = Math.min(inbox.capacity, datagramShare.portion());
    const count = inbox.receive(fd, atMost);
    if (count === atMost) {
      this.#unread.add(fd);
      this.#readSince += count;
    } else if (this.#readSince > 0) {
      this.#unread.delete(fd);
      if (this.#unread.size === 0) this.#readSince = 0;
    }
    catchUp();
    for (let i = 0; i < count && !this.isClosed; ) i += this.#deliver(i, count);
    if (count < 0 && count !== -EAGAIN && !this.isClosed) this.retryAfter('recvmmsg', -count);
  }

  override onShutdown(): void {
    for (const fd of this.#fds()) this.port.worker.loop.unwatch(fd);
  }

  /** Continues a flow of another process or worker. Throws a SysError when its descriptor cannot be watched. */
  resume(
    record: FlowRecord,
    target: Target,
    { errand, replay }: { errand?: Errand; replay?: UdpReplay | undefined } = {},
  ) {
    const { loop } = this.port.worker;
    const { fd, hasReplied, hasRetired, receivedBytes, sentBytes, keptUntil, unanswered } = record;
    const path = pathOf(record);
    const client = addressIn(path.name) as Address;
    loop.own(fd);
    const past = { hasReplied, hasRetired, receivedBytes, sentBytes, isKept: keptUntil !== undefined };
    const keptUntilMs = keptUntil && loop.nowMs + keptUntil - loop.clock.wallNow();
    const flow = new UdpFlow({ owner: this, target, client, fd, path, ...past, keptUntilMs, errand });
    flow.resumed(record);
    must('epoll_ctl', loop.watch(fd, FLOW_EVENTS, flow));
    if (unanswered !== undefined) flow.keepUnanswered(unanswered, replay);
    return flow;
  }

  /** Continues what waited in another process. */
  resumeWaiting(record: WaitingRecord): void {
    const { loop } = this.port.worker;
    loop.inNextTurn({ run: () => this.deliverCopies(pathOf(record), record.datagrams) });
  }

  *waitingRecords(): Iterable<WaitingRecord> {
    for (const { path, datagrams } of this.waiting) yield { kind: 'waiting', ...this.clientAt(path), datagrams };
  }

  protected deliverCopies(path: ReplyPath, datagrams: readonly Uint8Array[]): void {
    if (this.isClosed) return;
    for (const datagram of datagrams) {
      // As for those of the inbox.
      if (this.#flowAt(path, datagram)?.sendCopy(datagram) === false) this.#flowAt(path, datagram)?.sendCopy(datagram);
    }
  }

  protected clientAt({ name, control }: ReplyPath): FlowClient {
    return { port: this.port.id, name: bytes(name), control: bytes(control) };
  }

  protected override rewatch(events: number): void {
    for (const fd of this.#fds()) this.port.worker.loop.rewatch(fd, events);
  }

  #atMost(longestMs: number): Silences {
    const { loop, options } = this.port.worker;
    const { udpIdleTimeoutMs, udpFirstReplyTimeoutMs } = options;
    return {
      beforeReply: loop.deadlines.after(Math.min(longestMs, Math.max(udpIdleTimeoutMs, udpFirstReplyTimeoutMs))),
      afterReply: loop.deadlines.after(Math.min(longestMs, udpIdleTimeoutMs)),
    };
  }

  #fds(): readonly number[] {
    return [this.fd, ...this.#moreFds];
  }

  #flowAt(path: ReplyPath, datagram: Uint8Array): UdpFlow | undefined {
    return this.flows.at(path) ?? this.begin(path, () => datagram);
  }

  /** Sends datagram `i` and those of the same client behind it, as far as one run can take them. Returns how many. */
  #deliver(i: number, end: number): number {
    const { inbox } = this.port.worker;
    const flow = this.#flowOf(i);
    if (flow === undefined) return 1;
    const count = inbox.run(i, this.#endOfClient(i, end));
    const sent = flow.send(inbox, i, count);
    this.delivered(flow);
    // The refusal was for earlier datagrams: these get another endpoint, behind those that are sent again. That one may
    // have refused those already.
    let done = sent;
    for (let refusals = 1; done < count && refusals <= MAX_REFUSALS; refusals++) {
      const next = this.#flowOf(i + done);
      // Others of this run may have to wait, too.
      if (next === undefined) return done + 1;
      done += next.send(inbox, i + done, count - done);
    }
    if (done < count) this.port.count('limited', undefined, count - done);
    return count;
  }

  /** That of datagram `i`, perhaps a new one. */
  #flowOf(i: number): UdpFlow | undefined {
    const { inbox } = this.port.worker;
    return this.flows.get(inbox.localKey(i), inbox.clientKey(i)) ?? this.begin(inbox.replyPath(i), () => inbox.copy(i));
  }

  /** The first datagram after `i` that is not of the same client at the same address. */
  #endOfClient(i: number, end: number): number {
    const { inbox } = this.port.worker;
    const [local, client] = [inbox.localKey(i), inbox.clientKey(i)];
    let next = i + 1;
    while (next < end && inbox.clientKey(next) === client && inbox.localKey(next) === local) next++;
    return next;
  }
}

export function pathOf({ name, control }: { readonly name: Uint8Array; readonly control: Uint8Array }): ReplyPath {
  return { name: words(name), control: words(control), canSegment: true };
}

function words(bytes: Uint8Array): Int32Array {
  return new Int32Array(bytes.slice().buffer);
}

function bytes(words: Int32Array): Uint8Array {
  return new Uint8Array(words.slice().buffer);
}
