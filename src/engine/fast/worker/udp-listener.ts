import type { Address } from '../../../model/address.ts';
import { TryLog } from '../../../model/connection-log.ts';
import type { Limit } from '../../../model/data-plane.ts';
import { canSee } from '../../../services/known-clients.ts';
import { putLocalAddress, type ReplyPath } from '../../../sys/datagram-inbox.ts';
import { Memory } from '../../../sys/memory.ts';
import { connect, getsockname, SOCK_DGRAM, SOCKET_ADDRESS_BYTES, socket } from '../../../sys/socket.ts';
import { addressIn } from '../../../sys/socket-address.ts';
import { EADDRNOTAVAIL, ECONNREFUSED, errnoName, isExhaustion, SysError } from '../../../sys/sys-error.ts';
import { dialFailureOf, UNKNOWN_DESTINATION } from '../../errors.ts';
import { keptUdpClient } from '../../kept-client.ts';
import type { KeptClient } from '../../kept-dials.ts';
import { FlowTable } from './flow-table.ts';
import { KeptSocket } from './kept-flow-sockets.ts';
import type { FailedFlow, FlowClient, FlowSharer, Link } from './link.ts';
import type { FlowRecord } from './records.ts';
import type { Target } from './target.ts';
import { type FlowHome, UdpAwayFlow } from './udp-away-flow.ts';
import { clientOf, FLOW_EVENTS, UdpFlow } from './udp-flow.ts';
import { pathOf, UdpReceiver } from './udp-receiver.ts';
import { UdpReplay } from './udp-replay.ts';

const localName = new Memory(SOCKET_ADDRESS_BYTES);
const localNameWords = localName.words();

/** Connected to an endpoint: a descriptor, or what has one if the endpoint sees the client's address. */
type FlowSocket = number | KeptSocket;

/** Receives the datagrams of one Service port's clients at their home, and picks endpoints. */
export class UdpListener extends UdpReceiver implements FlowHome, FlowSharer {
  /** Flows that other workers carry. */
  readonly #away = new FlowTable<UdpAwayFlow>();
  /** Why the last attempt could not begin, if that was not for the endpoint. */
  #problem: string | undefined;

  retire(flow: UdpFlow): void {
    this.flows.retire(flow);
  }

  /** Carriers end theirs when they close the port, and tell it later. */
  override close(): boolean {
    for (const away of this.#away) this.#forget(away);
    return super.close();
  }

  onWanted(link: Link, client: FlowClient): void {
    if (link.isClosed) return;
    const path = pathOf(client);
    const away = this.#away.at(path);
    if (away !== undefined) {
      away.wantedBy(link, client);
      return;
    }
    const flow = this.isClosed ? undefined : (this.flows.at(path) ?? this.#begin(path));
    if (flow === undefined) link.send({ kind: 'refused', client });
    else this.#pass(flow, path, link);
  }

  /** Only carriers want flows of others. */
  onRefused(): void {}
  onRecalled(): void {}
  onLinked(): void {}

  onReturned(away: UdpAwayFlow, back?: { readonly record: FlowRecord; readonly isSilent: boolean }): void {
    this.#forget(away);
    if (back !== undefined) this.#takeBack(away, back);
    this.#serve(away);
  }

  onFailedElsewhere(away: UdpAwayFlow, { reason, unanswered }: FailedFlow): void {
    const { target, path } = away;
    this.#forget(away);
    if (reason !== undefined) this.port.flowFailedElsewhere(target, addressOf(path), reason);
    if (unanswered !== undefined && reason !== 'other') this.#askNext(away, unanswered, reason !== undefined);
    if (reason !== undefined && reason !== 'other' && !unanswered?.length) this.refuse(path);
    this.#serve(away);
  }

  ask(replay: UdpReplay): UdpFlow | undefined {
    const { client: address, path } = replay;
    let tries: TryLog | undefined;
    for (;;) {
      const before = replay.takeTurn();
      const target = before === undefined ? undefined : replay.next();
      if (target === undefined) {
        this.#giveUp(replay, before === 0 ? 'no-endpoints' : 'exhausted', tries);
        return undefined;
      }
      if (before !== 0) {
        if (!this.#hasRoom(replay, tries)) return undefined;
        this.port.count('retries', target);
        tries ??= new TryLog();
        tries.retries++;
      }
      const kept = this.#keptBy(target, address, path);
      const socket = this.#connect(target, kept);
      if (typeof socket === 'object' || socket >= 0) return this.#join(replay, target, socket, tries);
      tries ??= new TryLog();
      tries.fail(target.name, this.#problem === undefined ? dialFailureOf(errnoName(-socket)) : 'other');
      if (this.#failed(target, address, -socket)) continue;
      this.port.refusedDatagram(clientOf(path, address), 'refused-error', tries);
      return undefined;
    }
  }

  protected begin(path: ReplyPath, datagram: () => Uint8Array): UdpFlow | undefined {
    const away = this.#away.size === 0 ? undefined : this.#away.at(path);
    if (away === undefined) return this.#begin(path);
    // The kernel spreads clients anew when a port gets more sockets.
    if (this.waiting.add(path, datagram())) away.wantedBy(undefined, this.clientAt(path));
    return undefined;
  }

  /** Others can only help with flows that last: they ask this worker for each. */
  protected override delivered(flow: UdpFlow): void {
    const { spreading } = this.port.worker;
    if (spreading.wantsSharedSockets && this.flows.size > 1 && flow.isLasting) this.port.canSpread();
  }

  #giveUp({ client, path, mayBeAnswered }: UdpReplay, reason: 'no-endpoints' | 'exhausted', tries?: TryLog): void {
    this.port.clientRefused(client, reason);
    this.port.refusedDatagram(clientOf(path, client), `refused-${reason}`, tries);
    if (!mayBeAnswered) this.refuse(path);
  }

  /** `undefined` when the client gets no flow. */
  #begin(path: ReplyPath): UdpFlow | undefined {
    const client = addressOf(path);
    if (!this.#hasRoom({ client, path }, undefined)) return undefined;
    return new UdpReplay({ asking: this, client, path }).begin();
  }

  #pass(flow: UdpFlow, path: ReplyPath, link: Link): void {
    const { target } = flow;
    const { record, replay } = flow.depart();
    replay?.leave();
    const away = new UdpAwayFlow({ home: this, link, target, path, replay });
    this.#away.add(away);
    away.id = link.carry(away, record);
  }

  #takeBack(
    away: UdpAwayFlow,
    { record, isSilent }: { readonly record: FlowRecord; readonly isSilent: boolean },
  ): void {
    const { unanswered, ...rest } = record;
    let flow: UdpFlow | undefined;
    try {
      flow = this.resume(isSilent ? rest : record, away.target, { replay: away.replay });
    } catch (err) {
      if (!(err instanceof SysError)) throw err;
      // Such as the kernel's limit of watches.
      this.port.listenerFailed(err.message);
    }
    if (flow === undefined) this.flows.at(away.path)?.cut('proxy-error');
    else if (this.isClosed) flow.cut('proxy-removed');
    else if (!this.port.has(away.target)) flow.leave();
    else if (away.target.position < 0) this.retire(flow);
    if (isSilent && unanswered !== undefined) this.#askNext(away, unanswered);
  }

  #askNext({ target, path, replay }: UdpAwayFlow, unanswered: readonly Uint8Array[], hasRefused = false): void {
    if (this.isClosed) return;
    const asking = replay ?? new UdpReplay({ asking: this, client: addressOf(path), path });
    if (hasRefused) asking.refusedBy(target);
    asking.goOn(target, unanswered);
  }

  /** It counts against the limits no longer. */
  #forget(away: UdpAwayFlow): void {
    if (this.#away.delete(away)) this.port.worker.shares.flows.give(1, this.port.share);
  }

  /** Those who have got datagrams of its client meanwhile. */
  #serve({ wanting, path }: UdpAwayFlow): void {
    for (const link of wanting) {
      if (link !== undefined) this.onWanted(link, this.clientAt(path));
      else this.deliverCopies(path, this.waiting.take(path));
    }
  }

  /** `undefined` when its descriptor cannot be watched. */
  #join(replay: UdpReplay, target: Target, socket: FlowSocket, tries: TryLog | undefined): UdpFlow | undefined {
    const { client, path, hasRetired } = replay;
    const way =
      typeof socket === 'object' ? { fd: socket.fd, keptSocket: socket } : { fd: socket, kind: target.udpKind };
    const { fd } = way;
    const flow = new UdpFlow({ owner: this, target, client, path, replay, hasRetired, ...way });
    flow.follows(tries);
    flow.begun();
    target.taken();
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
  #hasRoom({ client, path }: Pick<UdpReplay, 'client' | 'path'>, tries: TryLog | undefined): boolean {
    let limit = this.#limit();
    const retired = this.flows.firstRetired;
    if (limit !== undefined && retired !== undefined) {
      // The new flow may be of the same client.
      retired.cut('proxy-replaced');
      limit = this.#limit();
    }
    if (limit === undefined) return true;
    // No old flow ends: a flood of forged clients must not end the flows of real ones.
    this.port.limited(client, limit);
    this.port.refusedDatagram(clientOf(path, client), 'refused-limit', tries);
    return false;
  }

  /** The limit that keeps a new flow out, if any. */
  #limit(): Limit | undefined {
    const { share, worker } = this.port;
    const limit = worker.shares.flows.limitOf(share);
    if (limit !== undefined) return `flows-${limit}`;
    return worker.admission.admitsFlow(share) ? undefined : 'descriptors';
  }

  /** Whether another endpoint may be asked. */
  #failed(target: Target, client: Address, errno: number): boolean {
    if (this.#problem === undefined) return this.port.flowFailed(target, client, errno);
    this.port.dialPrevented(target, this.#problem);
    return false;
  }

  /** The client if this endpoint sees its address. */
  #keptBy({ endpoint }: Target, address: Address, path: ReplyPath): KeptClient | 'unknown' | undefined {
    const { keptAddresses, worker } = this.port;
    if (keptAddresses === undefined || !canSee(endpoint.address, address)) return undefined;
    const client = { address, name: path.name, needsNewPort: false };
    return keptUdpClient(worker.clients, keptAddresses, client, () => {
      if (getsockname(this.fd, localName) < 0) return undefined;
      putLocalAddress(path, localNameWords);
      return worker.keptDials.destinationOf(localNameWords, client);
    });
  }

  /** Or a negative errno. `client`: if the endpoint sees its address. */
  #connect(target: Target, client: KeptClient | 'unknown' | undefined): FlowSocket {
    this.#problem = client === 'unknown' ? UNKNOWN_DESTINATION : undefined;
    if (client === 'unknown') return -EADDRNOTAVAIL;
    const { endpointSockets, keptFlowSockets } = this.port.worker;
    const earlier = client && keptFlowSockets.take(target.endpoint, client.address);
    if (earlier !== undefined) return earlier;
    const parked = client === undefined ? endpointSockets.takeUdp(target.udpKind) : -1;
    const fd = parked >= 0 ? parked : this.#open(target);
    if (fd < 0) return fd;
    return client === undefined
      ? this.#checked(connect(fd, target.address), fd, target)
      : this.#dialKept(fd, target, client);
  }

  /** The same for a new socket. */
  #dialKept(fd: number, target: Target, client: KeptClient): FlowSocket {
    const { keptDials, keptFlowSockets, loop } = this.port.worker;
    const { endpoint } = target;
    let dialled = keptDials.connectUdp(fd, endpoint, client);
    // They hold local ports.
    if (dialled === -EADDRNOTAVAIL && keptFlowSockets.closeAll()) dialled = keptDials.connectUdp(fd, endpoint, client);
    const status = this.#checked(dialled, fd, target);
    this.#problem = keptDials.problem;
    const { source } = keptDials;
    if (status < 0 || source === undefined) return status;
    return new KeptSocket(keptFlowSockets, { fd, source, endpoint, client: client.address }, loop.nowMs);
  }

  /** `fd` if it is connected to the target, with this `status`; else it is closed. */
  #checked(status: number, fd: number, target: Target): number {
    const { endpointSockets, loop } = this.port.worker;
    if (status === 0 && !endpointSockets.isToItself(fd, target)) return fd;
    loop.close(fd);
    return status === 0 ? -ECONNREFUSED : status;
  }

  /** A new socket, or a negative errno. */
  #open({ family }: Target): number {
    const { admission, endpointSockets, loop } = this.port.worker;
    let fd = socket(family, SOCK_DGRAM);
    if (isExhaustion(-fd) && admission.makeRoom()) fd = socket(family, SOCK_DGRAM);
    if (fd < 0) return fd;
    loop.own(fd);
    endpointSockets.prepare(fd, []);
    return fd;
  }
}

function addressOf({ name }: ReplyPath): Address {
  return addressIn(name) as Address;
}
