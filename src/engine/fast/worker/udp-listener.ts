import type { Address } from '../../../model/address.ts';
import { TryLog } from '../../../model/connection-log.ts';
import { type Endpoint, endpointName } from '../../../model/endpoint.ts';
import { canSee } from '../../../services/known-clients.ts';
import { putLocalAddress, type ReplyPath } from '../../../sys/datagram-inbox.ts';
import { Memory } from '../../../sys/memory.ts';
import { connect, getsockname, SOCK_DGRAM, SOCKET_ADDRESS_BYTES, socket } from '../../../sys/socket.ts';
import { decodeAddress } from '../../../sys/socket-address.ts';
import { EADDRNOTAVAIL, EAGAIN, ECONNREFUSED, EMFILE, errnoName, isExhaustion, must } from '../../../sys/sys-error.ts';
import { dialFailureOf, UNKNOWN_DESTINATION } from '../../errors.ts';
import { keptUdpClient } from '../../kept-client.ts';
import type { KeptClient } from '../../kept-dials.ts';
import type { Target } from './endpoints.ts';
import { FlowTable } from './flow-table.ts';
import { Listener, type Port } from './port.ts';
import { type CountedBackends, countedEndpoints } from './protocol.ts';
import type { FlowRecord } from './records.ts';
import { clientOf, FLOW_EVENTS, type FlowOwner, type Silences, UdpFlow } from './udp-flow.ts';
import { UdpReplay } from './udp-replay.ts';

const localName = new Memory(SOCKET_ADDRESS_BYTES);
const localNameWords = localName.words();

interface Joining {
  readonly fd: number;
  readonly tries: TryLog | undefined;
  readonly isKept: boolean;
}

/** Receives the datagrams of one Service port's clients, and gives each to its flow. */
export class UdpListener extends Listener implements FlowOwner {
  readonly flows = new FlowTable<UdpFlow>();
  readonly #silences: Silences;
  /** Why the last attempt could not begin, if that was not for the endpoint. */
  #problem: string | undefined;
  #isClosed = false;

  /** Throws a SysError when the descriptor cannot be watched. */
  constructor(port: Port, fd: number) {
    super(port, fd);
    const { loop, options } = port.worker;
    const { udpIdleTimeoutMs, udpFirstReplyTimeoutMs } = options;
    this.#silences = {
      beforeReply: loop.deadlines.after(Math.max(udpIdleTimeoutMs, udpFirstReplyTimeoutMs)),
      afterReply: loop.deadlines.after(udpIdleTimeoutMs),
    };
  }

  silences(isKept: boolean): Silences {
    if (!isKept) return this.#silences;
    const { loop, options, keptDials } = this.port.worker;
    const { udpIdleTimeoutMs, udpFirstReplyTimeoutMs } = options;
    const longestMs = keptDials.longestSilenceMs(loop.nowMs);
    return {
      beforeReply: loop.deadlines.after(Math.min(longestMs, Math.max(udpIdleTimeoutMs, udpFirstReplyTimeoutMs))),
      afterReply: loop.deadlines.after(Math.min(longestMs, udpIdleTimeoutMs)),
    };
  }

  override update(backends: CountedBackends): void {
    super.update(backends);
    if (this.flows.size === 0) return;
    const present = new Set(countedEndpoints(backends).map(endpointName));
    for (const flow of this.flows) {
      if (!present.has(flow.target.name)) flow.leave();
      else if (flow.target.member.position < 0) this.flows.retire(flow);
    }
  }

  /** Ends the flows. */
  close(): boolean {
    const { loop, replies } = this.port.worker;
    this.#isClosed = true;
    for (const flow of this.flows) flow.cut('proxy-removed');
    // Gathered replies leave by the socket that closes.
    replies.run();
    this.cancelDeadline();
    loop.unwatch(this.fd);
    return true;
  }

  onEvents(): void {
    const { catchUp, inbox, loop } = this.port.worker;
    const count = inbox.receive(this.fd);
    // The next datagram of a flow that is about to expire may not be read yet.
    if (count === inbox.capacity) loop.hasMore();
    catchUp();
    for (let i = 0; i < count && !this.#isClosed; ) i += this.#deliver(i, count);
    if (count < 0 && count !== -EAGAIN && !this.#isClosed) this.retryAfter('recvmmsg', -count);
  }

  retire(flow: UdpFlow): void {
    this.flows.retire(flow);
  }

  ask(replay: UdpReplay): UdpFlow | undefined {
    const client = clientOf(replay.path, replay.client);
    let tries: TryLog | undefined;
    for (;;) {
      const before = replay.takeTurn();
      const member = before === undefined ? undefined : replay.next();
      if (member === undefined) {
        const reason = before === 0 ? 'no-endpoints' : 'exhausted';
        this.port.clientRefused(client.address, reason);
        this.port.refusedDatagram(client, `refused-${reason}`, tries);
        return undefined;
      }
      const target = this.port.endpoints.target(member);
      if (before !== 0) {
        if (!this.#hasRoom(client, tries)) return undefined;
        this.port.count('retries', target);
        tries ??= new TryLog();
        tries.retries++;
      }
      const kept = this.#keptBy(target, client.address, replay.path);
      const fd = this.#connect(target, kept);
      if (fd >= 0) return this.#join(replay, target, { fd, tries, isKept: kept !== undefined });
      tries ??= new TryLog();
      tries.fail(target.name, this.#problem === undefined ? dialFailureOf(errnoName(-fd)) : 'other');
      if (this.#failed(target, client, -fd)) continue;
      this.port.refusedDatagram(client, 'refused-error', tries);
      return undefined;
    }
  }

  /** Continues a flow of another process. Throws a SysError when its descriptor cannot be watched. */
  resume(record: FlowRecord, target: Target): void {
    const { loop } = this.port.worker;
    const { fd, hasReplied, hasRetired, receivedBytes, sentBytes, keptUntil, name, control, unanswered } = record;
    const path = { name: words(name), control: words(control), canSegment: true };
    const client = decodeAddress(Buffer.from(name));
    loop.own(fd);
    const past = { hasReplied, hasRetired, receivedBytes, sentBytes, isKept: keptUntil !== undefined };
    const keptUntilMs = keptUntil && loop.nowMs + keptUntil - loop.clock.wallNow();
    const flow = new UdpFlow({ owner: this, target, client, fd, path, ...past, keptUntilMs });
    flow.resumed(record);
    must('epoll_ctl', loop.watch(fd, FLOW_EVENTS, flow));
    if (unanswered !== undefined) flow.keepUnanswered(unanswered);
  }

  /** Sends datagram `i` and those of the same client behind it, as far as one run can take them. Returns how many. */
  #deliver(i: number, end: number): number {
    const { inbox } = this.port.worker;
    const flow = this.#flowOf(i);
    if (flow === undefined) return 1;
    const count = inbox.run(i, this.#endOfClient(i, end));
    const sent = flow.send(inbox, i, count);
    // The refusal was for earlier datagrams: these get another endpoint, behind those that are sent again.
    if (sent < count) this.#flowOf(i + sent)?.send(inbox, i + sent, count - sent);
    return count;
  }

  /** That of datagram `i`, perhaps a new one. `undefined` when the client gets none. */
  #flowOf(i: number): UdpFlow | undefined {
    const { inbox } = this.port.worker;
    return this.flows.get(inbox.localKey(i), inbox.clientKey(i)) ?? this.#begin(i);
  }

  /** The first datagram after `i` that is not of the same client at the same address. */
  #endOfClient(i: number, end: number): number {
    const { inbox } = this.port.worker;
    const [local, client] = [inbox.localKey(i), inbox.clientKey(i)];
    let next = i + 1;
    while (next < end && inbox.clientKey(next) === client && inbox.localKey(next) === local) next++;
    return next;
  }

  /** `undefined` when the client gets no flow. */
  #begin(i: number): UdpFlow | undefined {
    const { inbox } = this.port.worker;
    const client = inbox.clientAddress(i);
    if (!this.#hasRoom({ address: client as Address, port: inbox.clientPort(i) }, undefined)) return undefined;
    return new UdpReplay({ asking: this, client, path: inbox.replyPath(i) }).begin();
  }

  /** `undefined` when its descriptor cannot be watched. */
  #join(replay: UdpReplay, target: Target, { fd, tries, isKept }: Joining): UdpFlow | undefined {
    const { client, path, hasRetired } = replay;
    const kind = isKept ? undefined : target.udpKind;
    const flow = new UdpFlow({ owner: this, target, client, fd, path, replay, hasRetired, isKept, kind });
    flow.follows(tries);
    this.port.begin();
    target.member.taken();
    this.port.joined(target);
    const { loop } = this.port.worker;
    if (loop.handlers[fd] !== undefined) {
      // It is watched since an earlier flow.
      loop.renew(fd, flow);
      return flow;
    }
    const status = loop.watch(fd, FLOW_EVENTS, flow);
    if (status === 0) return flow;
    flow.fail(-status);
    return undefined;
  }

  /** Ends a retired flow for it, if that is necessary. */
  #hasRoom(client: Endpoint, tries: TryLog | undefined): boolean {
    let limit = this.#limit();
    const retired = this.flows.firstRetired;
    if (limit !== undefined && retired !== undefined) {
      // The new flow may be of the same client.
      retired.cut('proxy-replaced');
      limit = this.#limit();
    }
    if (limit === undefined) return true;
    // No old flow ends: a flood of forged clients must not end the flows of real ones.
    this.port.limited(client.address, limit);
    this.port.refusedDatagram(client, 'refused-limit', tries);
    return false;
  }

  /** The limit that keeps a new flow out, if any. */
  #limit(): 'flows-per-service' | 'flows-total' | undefined {
    const { options, flows } = this.port.worker;
    if (this.flows.size >= options.udpMaxFlowsPerService) return 'flows-per-service';
    return flows.isSpent ? 'flows-total' : undefined;
  }

  /** Whether another endpoint may be asked. */
  #failed(target: Target, client: Endpoint, errno: number): boolean {
    if (this.#problem === undefined) return this.port.flowFailed(target, client.address, errno);
    this.port.dialPrevented(target, this.#problem);
    return false;
  }

  /** The client if this endpoint sees its address. */
  #keptBy({ endpoint }: Target, address: Address, path: ReplyPath): KeptClient | 'unknown' | undefined {
    const { keptAddresses, worker } = this.port;
    if (keptAddresses === undefined || !canSee(endpoint.address, address)) return undefined;
    const client = { address, name: path.name, hasWaited: false };
    return keptUdpClient(worker.clients, keptAddresses, client, () => {
      if (getsockname(this.fd, localName) < 0) return undefined;
      putLocalAddress(path, localNameWords);
      return worker.keptDials.destinationOf(localNameWords, client);
    });
  }

  /** A socket connected to the target, or a negative errno. `client`: if the endpoint sees its address. */
  #connect(target: Target, client: KeptClient | 'unknown' | undefined): number {
    const { worker } = this.port;
    const { loop, descriptorCeiling, endpointSockets } = worker;
    this.#problem = client === 'unknown' ? UNKNOWN_DESTINATION : undefined;
    if (client === 'unknown') return -EADDRNOTAVAIL;
    const parked = client === undefined ? endpointSockets.takeUdp(target.udpKind) : -1;
    const fd = parked >= 0 ? parked : this.#open(target);
    if (fd < 0) return fd;
    let status = -EMFILE;
    if (fd < descriptorCeiling && client !== undefined) {
      status = worker.keptDials.connectUdp(fd, target.endpoint, client);
      this.#problem = worker.keptDials.problem;
    } else if (fd < descriptorCeiling) {
      status = connect(fd, target.address);
    }
    if (status === 0 && !endpointSockets.isToItself(fd, target)) return fd;
    loop.close(fd);
    return status === 0 ? -ECONNREFUSED : status;
  }

  /** A new socket, or a negative errno. */
  #open({ family }: Target): number {
    const { admission, descriptorCeiling, endpointSockets, loop } = this.port.worker;
    let fd = socket(family, SOCK_DGRAM);
    if ((fd >= descriptorCeiling || isExhaustion(-fd)) && admission.makeRoom()) {
      if (fd >= 0) loop.close(fd);
      fd = socket(family, SOCK_DGRAM);
    }
    if (fd < 0) return fd;
    loop.own(fd);
    endpointSockets.prepare(fd, []);
    return fd;
  }
}

function words(bytes: Uint8Array): Int32Array {
  return new Int32Array(bytes.slice().buffer);
}
