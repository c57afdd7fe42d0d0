import { endpointName } from '../../../model/endpoint.ts';
import { keysOf } from '../../../sys/datagram-inbox.ts';
import { EPOLLIN } from '../../../sys/epoll.ts';
import {
  connect,
  SO_RCVBUF,
  SO_SNDBUF,
  SOCK_DGRAM,
  SOL_SOCKET,
  type SocketOption,
  socket,
} from '../../../sys/socket.ts';
import { decodeAddress } from '../../../sys/socket-address.ts';
import { describeErrno, EAGAIN, ECONNREFUSED, EMFILE, must } from '../../../sys/sys-error.ts';
import { Deadline, type DeadlineList } from './deadlines.ts';
import type { Target } from './endpoint-table.ts';
import type { Handler } from './event-loop.ts';
import { FlowTable } from './flow-table.ts';
import type { PortState } from './port-state.ts';
import { type CountedBackends, countedEndpoints } from './protocol.ts';
import type { FlowRecord } from './records.ts';
import { FLOW_EVENTS, UdpFlow } from './udp-flow.ts';
import type { ReplySocket } from './udp-replies.ts';

/** Room for bursts. The kernel caps it at `net.core.rmem_max` and `wmem_max`, and reserves nothing. */
const FLOW_OPTIONS: readonly SocketOption[] = [
  { level: SOL_SOCKET, name: SO_RCVBUF, value: 4 << 20 },
  { level: SOL_SOCKET, name: SO_SNDBUF, value: 4 << 20 },
];

/** After a failure that nobody expects. */
const RETRY_MS = 1000;

/** The listening socket of one Service port, and its flows. */
export class UdpPort extends Deadline implements Handler, ReplySocket {
  readonly fd: number;
  readonly state: PortState;
  readonly silenceBeforeReply: DeadlineList;
  readonly silenceAfterReply: DeadlineList;
  readonly #flows = new FlowTable();
  #isClosed = false;

  /** Throws a SysError when the descriptor cannot be watched. */
  constructor(state: PortState, fd: number) {
    super();
    this.fd = fd;
    this.state = state;
    const { udpIdleTimeoutMs, udpFirstReplyTimeoutMs } = state.worker.options;
    const { loop } = state.worker;
    this.silenceBeforeReply = loop.deadlines.after(Math.max(udpIdleTimeoutMs, udpFirstReplyTimeoutMs));
    this.silenceAfterReply = loop.deadlines.after(udpIdleTimeoutMs);
    must('epoll_ctl', loop.watch(fd, EPOLLIN, this));
  }

  update(backends: CountedBackends): void {
    this.state.update(backends);
    if (this.#flows.size === 0) return;
    const present = new Set(countedEndpoints(backends).map(endpointName));
    for (const flow of this.#flows) {
      if (!present.has(flow.target.name)) this.end(flow);
      else if (!this.state.picker.has(flow.target.endpoint)) this.#flows.retire(flow);
    }
  }

  /** Flows end; the descriptor is given back. */
  close(): boolean {
    const { loop, udp } = this.state.worker;
    this.#isClosed = true;
    for (const flow of this.#flows) this.end(flow);
    // Gathered replies are for the socket that goes.
    udp.replies.run();
    this.cancelDeadline();
    loop.unwatch(this.fd);
    return true;
  }

  onEvents(): void {
    const { catchUp, loop, udp } = this.state.worker;
    const count = udp.inbox.receive(this.fd);
    // What keeps a flow alive may be among those that are still to be read.
    if (count === udp.inbox.capacity) loop.hasMore();
    catchUp();
    for (let i = 0; i < count && !this.#isClosed; ) i += this.#deliver(i, count);
    if (count < 0 && count !== -EAGAIN && !this.#isClosed) this.#failed(-count);
  }

  onShutdown(): void {
    this.state.worker.loop.unwatch(this.fd);
  }

  onDue(): void {
    this.state.worker.loop.rewatch(this.fd, EPOLLIN);
  }

  /** Goes on with a flow of another process. Throws a SysError when its descriptor cannot be watched. */
  resume({ fd, hasReplied, hasRetired, name, control }: FlowRecord, target: Target): void {
    const { loop, flows } = this.state.worker;
    const path = { name: words(name), control: words(control), canSegment: true };
    const keys = keysOf(path);
    const flow = new UdpFlow({
      port: this,
      target,
      client: decodeAddress(Buffer.from(name)),
      localKey: keys.local,
      clientKey: keys.client,
      fd,
      path,
      hasReplied,
      hasRetired,
    });
    loop.own(fd);
    must('epoll_ctl', loop.watch(fd, FLOW_EVENTS, flow));
    this.#flows.add(flow);
    flows.begin();
    this.state.resumed(target);
  }

  /** The endpoint, or the way to it, failed the flow. */
  fail(flow: UdpFlow, errno: number): void {
    this.end(flow);
    this.#blame(flow.target, flow.client, errno);
  }

  end(flow: UdpFlow): void {
    if (flow.isOver) return;
    flow.isOver = true;
    flow.cancelDeadline();
    this.#flows.delete(flow);
    const { loop, flows, admission } = this.state.worker;
    loop.close(flow.fd);
    flows.end();
    this.state.end(flow.target);
    admission.freed();
  }

  /** What the client of datagram `i` has sent in a row, if it can go on together. Returns how many these are. */
  #deliver(i: number, end: number): number {
    const { inbox } = this.state.worker.udp;
    const flow = this.#flows.get(inbox.localKey(i), inbox.clientKey(i)) ?? this.#begin(i);
    if (flow === undefined) return 1;
    const count = inbox.run(i, this.#endOfClient(i, end));
    const sent = flow.send(inbox, i, count);
    // The refusal was for earlier datagrams: these get another endpoint.
    if (sent < count) this.#begin(i + sent)?.send(inbox, i + sent, count - sent);
    return count;
  }

  /** The first datagram after `i` that is not of the same client at the same address. */
  #endOfClient(i: number, end: number): number {
    const { inbox } = this.state.worker.udp;
    const [local, client] = [inbox.localKey(i), inbox.clientKey(i)];
    let next = i + 1;
    while (next < end && inbox.clientKey(next) === client && inbox.localKey(next) === local) next++;
    return next;
  }

  /** `undefined` when the client is turned away. */
  #begin(i: number): UdpFlow | undefined {
    const { loop, flows, udp } = this.state.worker;
    const client = udp.inbox.clientAddress(i);
    let limit = this.#limit();
    if (limit !== undefined && this.#endFirstRetired()) limit = this.#limit();
    if (limit !== undefined) {
      // The new flow is refused, not an old one ended: a flood of invented clients must not drive out the real ones.
      this.state.limited({ client, limit });
      return undefined;
    }
    const endpoint = this.state.picker.pick(client, loop.nowMs).next();
    if (endpoint === undefined) {
      this.state.turnedAway({ client, reason: 'no-endpoints' });
      return undefined;
    }
    const target = this.state.endpoints.target(endpoint);
    const fd = this.#connect(target);
    if (fd < 0) {
      this.#blame(target, client, -fd);
      return undefined;
    }
    const { inbox } = udp;
    const [localKey, clientKey] = [inbox.localKey(i), inbox.clientKey(i)];
    const path = inbox.replyPath(i);
    const flow = new UdpFlow({
      port: this,
      target,
      client,
      localKey,
      clientKey,
      fd,
      path,
      hasReplied: false,
      hasRetired: false,
    });
    this.#flows.add(flow);
    flows.begin();
    this.state.begin();
    this.state.joined(target);
    const status = loop.watch(fd, FLOW_EVENTS, flow);
    if (status === 0) return flow;
    this.fail(flow, -status);
    return undefined;
  }

  /** The bound that keeps a new flow out, if any. */
  #limit(): 'flows-per-service' | 'flows-total' | undefined {
    const { options, flows } = this.state.worker;
    if (this.#flows.size >= options.udpMaxFlowsPerService) return 'flows-per-service';
    return flows.isSpent ? 'flows-total' : undefined;
  }

  /** Its client may be the very one that is to begin another. */
  #endFirstRetired(): boolean {
    const flow = this.#flows.firstRetired;
    if (flow !== undefined) this.end(flow);
    return flow !== undefined;
  }

  /** A socket connected to the target, or a negative errno. */
  #connect(target: Target): number {
    const { loop, descriptorCeiling, endpointSockets } = this.state.worker;
    const fd = socket(target.family, SOCK_DGRAM);
    if (fd < 0) return fd;
    loop.own(fd);
    endpointSockets.prepare(fd, FLOW_OPTIONS);
    const status = fd < descriptorCeiling ? connect(fd, target.address) : -EMFILE;
    if (status === 0 && !endpointSockets.isToItself(fd, target)) return fd;
    loop.close(fd);
    return status === 0 ? -ECONNREFUSED : status;
  }

  #blame(target: Target, client: string, errno: number): void {
    const reason = this.state.dialFailed(target, errno);
    // The endpoint's failure, not this node's: the client's next datagram must not be pinned to it.
    if (reason !== 'other') this.state.picker.forget(client, target.endpoint);
  }

  #failed(errno: number): void {
    // The socket stays ready to read, so going on at once might spin.
    const { loop } = this.state.worker;
    this.state.listenerFailed(`recvmmsg: ${describeErrno(errno)}`);
    loop.rewatch(this.fd, 0);
    loop.deadlines.after(RETRY_MS).start(this, loop.nowMs);
  }
}

function words(bytes: Uint8Array): Int32Array {
  return new Int32Array(bytes.slice().buffer);
}
