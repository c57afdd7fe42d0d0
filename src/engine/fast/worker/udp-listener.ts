import { EPOLLIN } from '../../../sys/epoll.ts';
import { EAGAIN, must, SysError } from '../../../sys/sys-error.ts';
import type { WaitingClient } from '../../core/udp-waiting.ts';
import type { Waiter } from '../../core/waiting-room.ts';
import { openFlowSocket, stopReceiving } from '../listen-socket.ts';
import { AwaySession } from './away-session.ts';
import type { Over } from './link.ts';
import { Listener } from './listener.ts';
import type { Port } from './port.ts';
import type { CountedBackends } from './protocol.ts';
import type { FlowRecord, WaitingRecord } from './records.ts';
import type { Target } from './target.ts';
import type { UdpFlow } from './udp-flow.ts';
import { FlowClient, type FlowHost, UdpFlows, waitingRecord } from './udp-flows.ts';

/**
 * So many datagrams are read without an end until flows of the port end nevertheless. After a standstill the kernel's
 * queue holds less; a flood never ends.
 */
const MAX_UNREAD = 12_800;

/** So many endpoints may refuse one after the other until datagrams are lost. */
const MAX_REFUSALS = 8;

/** Flows of one port with a socket of their own. The kernel looks at each of them for every other client's datagram. */
const MAX_OWN_SOCKETS = 64;

/** Receives the datagrams of one Service port's clients, and gives each to its flow. */
export class UdpListener extends Listener implements FlowHost {
  readonly #flows: UdpFlows;
  /** Flows that other workers carry. */
  readonly #away = new Set<AwayFlow>();
  #ownSockets = 0;
  /** The last one with a datagram of this event that another worker could carry. */
  #movable: UdpFlow | undefined;
  #isClosed = false;
  /** Sockets whose last read was full. */
  readonly #unread = new Set<number>();
  #readSince = 0;

  constructor(port: Port, fd: number) {
    super(port, fd);
    this.#flows = new UdpFlows(this, port);
  }

  /** A datagram that came in time to a flow of this port may wait in the kernel. */
  get mayHaveUnread(): boolean {
    return this.#readSince > 0 && this.#readSince < MAX_UNREAD;
  }

  override update(backends: CountedBackends): void {
    super.update(backends);
    this.#flows.updated();
  }

  /** Ends the flows. Carriers end theirs when they close the port, and tell it later. */
  close(): boolean {
    const { loop, replies } = this.port.worker;
    this.#isClosed = true;
    for (const away of this.#away) this.#forget(away);
    this.#flows.cutAll();
    // Gathered replies leave by the socket that closes.
    replies.run();
    this.retry.cancel();
    loop.unwatch(this.fd);
    return true;
  }

  onEvents(_events: number, fd: number): void {
    const { datagramBudget, inbox } = this.port.worker;
    const isEmpty = this.#read(fd, Math.min(inbox.capacity, datagramBudget.portion()));
    const flow = this.#movable;
    if (flow === undefined) return;
    this.#movable = undefined;
    if (flow.isOver || this.#isClosed) return;
    if (flow.hasOwnSocket) this.#passOn(flow);
    else if (isEmpty) this.#separate(flow);
  }

  /** Continues a flow of another process. Throws a SysError when a descriptor cannot be watched. */
  resume(record: FlowRecord, target: Target): void {
    this.#flows.resume(record, target);
  }

  /** Continues what was on its way here in another process. */
  resumeWaiting(record: WaitingRecord): void {
    const { datagrams, waiting } = record;
    const from = FlowClient.of(record);
    this.port.worker.loop.inNextTurn({
      run: () => {
        if (waiting === undefined) this.bring(from, datagrams);
        else this.#flows.waitAgain(from, datagrams, waiting);
      },
    });
  }

  /** Of clients that wait for an endpoint. */
  *waiting(): Generator<WaitingRecord, undefined> {
    for (const { from, backlog, waiter } of this.#flows.waiting) {
      yield { ...waitingRecord(this.port, from, backlog.datagrams), waiting: waiter.record(this.port.thread) };
    }
  }

  bring(from: FlowClient, datagrams: readonly Uint8Array[], waiter?: Waiter): void {
    if (this.#isClosed) return;
    // Twice, as for those of the inbox.
    for (const datagram of datagrams) {
      if (!this.#giveCopy(from, datagram, waiter)) this.#giveCopy(from, datagram, waiter);
    }
  }

  /** Whether the datagram was handled. */
  #giveCopy(from: FlowClient, datagram: Uint8Array, waiter: Waiter | undefined): boolean {
    const { localKey, clientKey } = from;
    const flow = this.#flows.table.get(localKey, clientKey);
    if (flow !== undefined) return flow.sendCopy(datagram);
    if (this.#flows.waitingAt(localKey, clientKey) === undefined) {
      const begun = this.#flows.begin(from, waiter);
      if (begun !== undefined) return begun.sendCopy(datagram);
    }
    this.#flows.waitingAt(localKey, clientKey)?.keep(datagram, waiter === undefined);
    return true;
  }

  watchSocket(_flow: UdpFlow, fd: number): void {
    this.#ownSockets++;
    // As it may have received others' datagrams, it is one more listener at first.
    must('epoll_ctl', this.port.worker.loop.watch(fd, EPOLLIN, this));
  }

  readSocket(_flow: UdpFlow, fd: number): void {
    this.#read(fd, this.port.worker.inbox.capacity);
  }

  releaseSocket(_flow: UdpFlow, fd: number): void {
    const { loop } = this.port.worker;
    this.#ownSockets--;
    stopReceiving(fd);
    // The inbox may be in use now.
    loop.atEndOfTurn({
      run: () => {
        this.#readAll(fd);
        loop.close(fd);
      },
    });
  }

  #readAll(fd: number): void {
    const { capacity } = this.port.worker.inbox;
    for (let read = 0; read < MAX_UNREAD && !this.#read(fd, capacity); read += capacity);
  }

  /** Reads once. Whether nothing was left. */
  #read(fd: number, atMost: number): boolean {
    const { catchUp, inbox } = this.port.worker;
    const count = inbox.receive(fd, atMost);
    if (count === atMost) {
      this.#unread.add(fd);
      this.#readSince += count;
    } else if (this.#readSince > 0) {
      this.#unread.delete(fd);
      if (this.#unread.size === 0) this.#readSince = 0;
    }
    catchUp();
    for (let i = 0; i < count && !this.#isClosed; ) i += this.#deliver(i, count);
    // One of a flow's own socket is of a reply that its client has refused.
    const hasFailed = count < 0 && count !== -EAGAIN && fd === this.fd;
    if (hasFailed && !this.#isClosed) this.retryAfter('recvmmsg', -count);
    return count < atMost;
  }

  /** Sends datagram `i` and those of the same client behind it, as far as one run can take them. Returns how many. */
  #deliver(i: number, end: number): number {
    const { inbox } = this.port.worker;
    const flow = this.#flowOf(i);
    if (flow === undefined) {
      this.#waitingAt(i)?.keep(inbox.copy(i));
      return 1;
    }
    const count = inbox.run(i, this.#endOfClient(i, end));
    const sent = flow.send(inbox, i, count);
    if (flow.mayMove) this.#mayPassOn(flow);
    // The refusal was for earlier datagrams: these get another endpoint, behind those that are sent again. That one may
    // have refused those already.
    let done = sent;
    for (let refusals = 1; done < count && refusals <= MAX_REFUSALS; refusals++) {
      const next = this.#flowOf(i + done);
      if (next === undefined) {
        this.#waitingAt(i + done)?.keep(inbox.copy(i + done));
        return done + 1;
      }
      done += next.send(inbox, i + done, count - done);
    }
    if (done < count) this.port.count('limited', undefined, count - done);
    return count;
  }

  /** That of datagram `i`, perhaps a new one; `undefined` where its client gets none, or waits. */
  #flowOf(i: number): UdpFlow | undefined {
    const { inbox } = this.port.worker;
    const known = this.#flows.table.get(inbox.localKey(i), inbox.clientKey(i));
    if (known !== undefined || this.#waitingAt(i) !== undefined) return known;
    return this.#flows.begin(new FlowClient(inbox.replyPath(i)));
  }

  /** The client of datagram `i`, if it waits. */
  #waitingAt(i: number): WaitingClient<FlowClient> | undefined {
    const { inbox } = this.port.worker;
    return this.#flows.waitingAt(inbox.localKey(i), inbox.clientKey(i));
  }

  /** The first datagram after `i` that is not of the same client at the same address. */
  #endOfClient(i: number, end: number): number {
    const { inbox } = this.port.worker;
    const [local, client] = [inbox.localKey(i), inbox.clientKey(i)];
    let next = i + 1;
    while (next < end && inbox.clientKey(next) === client && inbox.localKey(next) === local) next++;
    return next;
  }

  #mayPassOn(flow: UdpFlow): void {
    // One that is about to move is no part of what there is to even out.
    if (!flow.hasOwnSocket) flow.noteActive();
    if (this.port.canSpread()) this.#movable = flow;
  }

  /**
   * Gives the flow a socket of its own, which it can go on with in another worker (docs/adr/0037). All that came before
   * has been read, or is read here: nothing of this client is sent after what comes to the new socket.
   */
  #separate(flow: UdpFlow): void {
    const { worker, share } = this.port;
    if (this.#ownSockets + this.#away.size >= MAX_OWN_SOCKETS) return;
    if (!worker.shares.flowDescriptors.mayTake(share)) return;
    const link = this.port.carrierForConnection();
    if (link === undefined) return;
    let fd = -1;
    try {
      fd = openFlowSocket(this.fd, flow.from.path);
      worker.loop.own(fd);
      flow.carrier = link.worker;
      flow.useSocket(fd);
    } catch (err) {
      if (!(err instanceof SysError)) throw err;
      // No descriptor or watch is left, or the address has gone: it stays as it is.
      flow.staysHere = true;
      if (fd >= 0) flow.releaseSocket();
      return;
    }
    this.#readAll(this.fd);
  }

  /** Another worker goes on with it. */
  #passOn(flow: UdpFlow): void {
    const { peers, spreading } = this.port.worker;
    if (!flow.isApart || !spreading.wants) return;
    const link = flow.carrier === undefined ? this.port.carrierForConnection() : peers.to(flow.carrier);
    if (link === undefined || link.isClosed) return;
    this.#ownSockets--;
    const record = flow.depart();
    const away = new AwayFlow(this.port, flow.target, { from: flow.from, onEnd: (ended) => this.#forget(ended) });
    this.#away.add(away);
    link.carry(away, record);
  }

  /** It counts against the limits no longer. */
  #forget(away: AwayFlow): void {
    if (!this.#away.delete(away)) return;
    const { descriptors, flows } = this.port.worker.shares;
    flows.give(1, this.port.share);
    descriptors.give(1, this.port.share);
  }
}

/** What the home knows of a flow that another worker carries. */
class AwayFlow extends AwaySession {
  readonly #from: FlowClient;
  readonly #onEnd: (away: AwayFlow) => void;

  constructor(port: Port, target: Target, { from, onEnd }: { from: FlowClient; onEnd: (away: AwayFlow) => void }) {
    super(port, target);
    this.#from = from;
    this.#onEnd = onEnd;
  }

  onOver(over: Over): void {
    this.uncount();
    this.#onEnd(this);
    if (over.kind === 'flow-failed') this.port.flowFailedElsewhere(this.target, this.#from.address, over.reason);
  }
}
