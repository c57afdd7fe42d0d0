import type { Address } from '../../../model/address.ts';
import type { TryLog } from '../../../model/connection-log.ts';
import type { DialFailure } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { canSee } from '../../../services/known-clients.ts';
import { keysOf, putLocalAddress, type ReplyPath } from '../../../sys/datagram-inbox.ts';
import { Memory } from '../../../sys/memory.ts';
import { sendPortUnreachable } from '../../../sys/port-unreachable.ts';
import { connect, getsockname, SOCK_DGRAM, SOCKET_ADDRESS_BYTES, socket } from '../../../sys/socket.ts';
import { addressIn, portIn } from '../../../sys/socket-address.ts';
import { describeErrno, EADDRNOTAVAIL, ECONNREFUSED, errnoName, isExhaustion, must } from '../../../sys/sys-error.ts';
import type { DeadlineList } from '../../core/deadlines.ts';
import { type FlowClient as CoreFlowClient, UdpFlows as CoreUdpFlows } from '../../core/udp-flows.ts';
import type { Replay as CoreReplay } from '../../core/udp-replay.ts';
import type { Waiter } from '../../core/waiting-room.ts';
import { dialFailureOf, UNKNOWN_DESTINATION } from '../../errors.ts';
import { keptUdpClient } from '../../kept-client.ts';
import type { KeptClient } from '../../kept-dials.ts';
import { KeptSocket } from './kept-flow-sockets.ts';
import type { RemoteHome } from './link.ts';
import type { Port } from './port.ts';
import type { FlowRecord, WaitingRecord } from './records.ts';
import type { Target } from './target.ts';
import { FLOW_EVENTS, UdpFlow } from './udp-flow.ts';

const [localName, clientName] = [new Memory(SOCKET_ADDRESS_BYTES), new Memory(SOCKET_ADDRESS_BYTES)];
const [localNameWords, clientNameWords] = [localName.words(), clientName.words()];

/** A client, and the way of replies to it. */
export class FlowClient implements CoreFlowClient {
  readonly address: Address;
  readonly path: ReplyPath;
  readonly localKey: number | string;
  readonly clientKey: number | string;

  constructor(path: ReplyPath) {
    const { local, client } = keysOf(path);
    this.address = addressIn(path.name) as Address;
    this.path = path;
    this.localKey = local;
    this.clientKey = client;
  }

  static of({ name, control }: Pick<FlowRecord, 'name' | 'control'>): FlowClient {
    return new FlowClient({ name: words(name), control: words(control), canSegment: true });
  }

  get endpoint(): Endpoint {
    return { address: this.address, port: portIn(this.path.name) };
  }

  /** For another worker or process. */
  describe(): Pick<FlowRecord, 'name' | 'control'> {
    return { name: bytes(this.path.name), control: bytes(this.path.control) };
  }
}

export type Replay = CoreReplay<FlowClient, UdpFlow>;

/** What ends flows of one kind. */
export interface Silences {
  readonly beforeReply: DeadlineList;
  readonly afterReply: DeadlineList;
}

interface SilencesFor {
  /** That of the Service after a reply. */
  readonly idleMs: number;
  readonly longestMs: number;
  readonly silences: Silences;
}

/** The worker's part of a Service port that has the flows: its listener, or what carries for another worker. */
export interface FlowHost {
  readonly port: Port;
  /** The listener's, by which replies leave. */
  readonly fd: number;
  /** A datagram that came in time to a flow may wait in the kernel. */
  readonly mayHaveUnread: boolean;
  /** Watches the flow's own socket: see `openFlowSocket`. */
  watchSocket(flow: UdpFlow, fd: number): void;
  /** Takes what waits there. */
  readSocket(flow: UdpFlow, fd: number): void;
  /** The flow does not use it any more. What waits there begins the client's next flow. */
  releaseSocket(flow: UdpFlow, fd: number): void;
  /** These came to a flow that has ended, or have waited for an endpoint, as `waiter` says. */
  bring(from: FlowClient, datagrams: readonly Uint8Array[], waiter?: Waiter): void;
}

/** Flows of one Service port in one worker. */
export class UdpFlows extends CoreUdpFlows<FlowClient, UdpFlow> {
  readonly host: FlowHost;
  readonly port: Port;
  /** Made for the times that hold now, which may change. */
  #ofOthers: SilencesFor | undefined;
  /** Of flows whose entries in connection tracking end after so much silence. */
  #ofKept: SilencesFor | undefined;

  constructor(host: FlowHost, port: Port) {
    super();
    this.host = host;
    this.port = port;
  }

  refuse({ path }: FlowClient): void {
    const { loop, refusals } = this.port.worker;
    if (!refusals.tryTake(this.port, loop.nowMs) || getsockname(this.host.fd, localName) < 0) return;
    putLocalAddress(path, localNameWords);
    clientNameWords.set(path.name);
    sendPortUnreachable(clientName, localName);
  }

  override retire(flow: UdpFlow): void {
    super.retire(flow);
    flow.releaseSocket();
  }

  silences(isKept: boolean): Silences {
    const { loop, keptDials } = this.port.worker;
    const idleMs = this.port.udpIdleTimeoutMs;
    const longestMs = isKept ? keptDials.longestSilenceMs(loop.nowMs) : Number.POSITIVE_INFINITY;
    const known = isKept ? this.#ofKept : this.#ofOthers;
    if (known?.idleMs === idleMs && known.longestMs === longestMs) return known.silences;
    const made = { idleMs, longestMs, silences: this.#atMost(longestMs) };
    if (isKept) this.#ofKept = made;
    else this.#ofOthers = made;
    return made.silences;
  }

  cutAll(): void {
    for (const flow of this.table) flow.cut('proxy-removed');
  }

  /** Continues a flow of another process or worker. Throws a SysError when a descriptor cannot be watched. */
  resume(record: FlowRecord, target: Target, home?: RemoteHome): void {
    const { loop } = this.port.worker;
    const { fd, ownFd = -1, hasReplied, hasRetired, receivedBytes, sentBytes, keptUntil, unanswered } = record;
    loop.own(fd);
    if (ownFd >= 0) loop.own(ownFd);
    const past = { hasReplied, hasRetired, receivedBytes, sentBytes, isKept: keptUntil !== undefined };
    const keptUntilMs = keptUntil && loop.nowMs + keptUntil - loop.clock.wallNow();
    const flow = new UdpFlow({ flows: this, target, from: FlowClient.of(record), fd, ...past, keptUntilMs, home });
    flow.resumed(record);
    try {
      must('epoll_ctl', loop.watch(fd, FLOW_EVENTS, flow));
      if (ownFd >= 0) flow.useSocket(ownFd);
    } catch (err) {
      flow.cut('proxy-error');
      throw err;
    }
    if (unanswered !== undefined) this.keepUnanswered(flow, unanswered);
  }

  protected bring(from: FlowClient, datagrams: readonly Uint8Array[], waiter: Waiter): void {
    this.host.bring(from, datagrams, waiter);
  }

  protected reach(target: Target, replay: Replay, tries: TryLog | undefined): UdpFlow | DialFailure | undefined {
    const kept = this.#keptBy(target, replay.from);
    if (kept === 'unknown') return this.notReached(target, replay.from, 'other', UNKNOWN_DESTINATION);
    if (kept !== undefined) return this.#reachKept(target, kept, replay, tries);
    const { endpointSockets } = this.port.worker;
    const parked = endpointSockets.takeUdp(target.udpKind);
    const fd = parked >= 0 ? parked : this.#open(target);
    const status = fd < 0 ? fd : this.#checked(connect(fd, target.address), fd, target);
    return status < 0 ? this.#failedWith(status, target, replay) : this.#join(target, replay, tries, fd);
  }

  /** The same for an endpoint that sees the client's address. */
  #reachKept(target: Target, client: KeptClient, replay: Replay, tries: TryLog | undefined) {
    const { keptDials, keptFlowSockets, loop } = this.port.worker;
    const { endpoint } = target;
    const earlier = keptFlowSockets.take(endpoint, client.address);
    if (earlier !== undefined) return this.#join(target, replay, tries, earlier.fd, earlier);
    const fd = this.#open(target);
    if (fd < 0) return this.#failedWith(fd, target, replay);
    let dialled = keptDials.connectUdp(fd, endpoint, client);
    // They hold local ports.
    if (dialled.status === -EADDRNOTAVAIL && keptFlowSockets.closeAll()) {
      dialled = keptDials.connectUdp(fd, endpoint, client);
    }
    const { problem, source } = dialled;
    const status = this.#checked(dialled.status, fd, target);
    if (status < 0) return this.#failedWith(status, target, replay, problem);
    if (source === undefined) return this.#join(target, replay, tries, fd);
    const setup = { fd, source, endpoint, client: client.address };
    return this.#join(target, replay, tries, fd, new KeptSocket(keptFlowSockets, setup, loop.nowMs));
  }

  /** `problem`: if it lies in this node. */
  #failedWith(status: number, target: Target, { from }: Replay, problem?: string): DialFailure {
    if (problem !== undefined) return this.notReached(target, from, 'other', problem);
    return this.notReached(target, from, dialFailureOf(errnoName(-status)), describeErrno(-status));
  }

  /** `undefined` when its descriptor cannot be watched. */
  #join(target: Target, replay: Replay, tries: TryLog | undefined, fd: number, keptSocket?: KeptSocket) {
    const { from, hasRetired } = replay;
    const kind = keptSocket === undefined ? target.udpKind : undefined;
    const flow = new UdpFlow({ flows: this, target, from, fd, replay, hasRetired, keptSocket, kind });
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

  /** The client if this endpoint sees its address. */
  #keptBy({ endpoint }: Target, { address, path }: FlowClient): KeptClient | 'unknown' | undefined {
    const { keptAddresses, worker } = this.port;
    if (keptAddresses === undefined || !canSee(endpoint.address, address)) return undefined;
    const client = { address, name: path.name, needsNewPort: false };
    return keptUdpClient(worker.clients, keptAddresses, client, () => {
      if (getsockname(this.host.fd, localName) < 0) return undefined;
      putLocalAddress(path, localNameWords);
      return worker.keptDials.destinationOf(localNameWords, client);
    });
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

  #atMost(longestMs: number): Silences {
    const { deadlines } = this.port.worker.loop;
    return {
      beforeReply: deadlines.after(this.silenceMs(false, longestMs)),
      afterReply: deadlines.after(this.silenceMs(true, longestMs)),
    };
  }
}

/** For the home of a Service port, or a successor. */
export function waitingRecord(port: Port, from: FlowClient, datagrams: readonly Uint8Array[]): WaitingRecord {
  const { name, control } = from.describe();
  return { kind: 'waiting', port: port.id, name, control, datagrams };
}

function words(bytes: Uint8Array): Int32Array {
  return new Int32Array(bytes.slice().buffer);
}

function bytes(words: Int32Array): Uint8Array {
  return new Uint8Array(words.slice().buffer);
}
