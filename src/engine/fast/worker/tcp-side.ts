import type { OpenConnection } from '../../../model/data-plane.ts';
import { read, splice } from '../../../sys/descriptor.ts';
import { EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import { MSG_MORE, peerState, recv, send, setOption, unacknowledgedBytes } from '../../../sys/socket.ts';
import { EAGAIN, EINVAL, EIO, ENOMEM, ENOSYS, EPERM } from '../../../sys/sys-error.ts';
import { isDead, lookIntervalMs, NEVER, unansweredSinceMs } from './dead-peer.ts';
import { Deadline } from './deadlines.ts';
import type { Handler, Task } from './event-loop.ts';
import type { Pipe } from './pipe-pool.ts';
import { add, type PortState } from './port-state.ts';
import { COUNTER } from './protocol.ts';
import type { LiveRecord, SideRecord } from './records.ts';
import type { TcpConnection } from './tcp-connection.ts';
import { URGENT_IN_LINE } from './tcp-options.ts';

/**
 * Edge-triggered: one registration serves a socket for life, and what is drained costs the kernel nothing per turn. In
 * return whoever stops before the end must come back by himself: reading stops at EAGAIN or a short read, writing at
 * EAGAIN, and a spent budget goes on in the next turn.
 */
export const SIDE_EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;

/**
 * After these a short read does not mean that there is no more: an end or an error may stand behind the bytes, and
 * reading stops short at urgent data.
 */
const MORE_BEHIND = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI;
const SOMETHING_TO_READ = EPOLLIN | MORE_BEHIND;

/** A read that fills this means bulk. It is what one call can copy while it stays in the processor's second cache. */
export const SCRATCH_BYTES = 64 << 10;

/** Reads below {@link SCRATCH_BYTES} in a row that turn a bulk stream into one of messages again. */
const BULK_PATIENCE = 8;
const NEVER_BULK = -1;

/**
 * Splicing is at fault, not the socket. An error of the socket itself must end its stream here: the kernel tells of it
 * once, and a read after it looks like a clean end.
 */
const CANNOT_SPLICE: ReadonlySet<number> = new Set([EINVAL, EIO, ENOMEM, ENOSYS, EPERM]);

/**
 * One side of a connection, and the stream of bytes that comes from it: what is read here is written to {@link peer}. An
 * endpoint's is a deadline, too: it is looked at while it has something to acknowledge.
 */
export class TcpSide extends Deadline implements Handler, Task {
  readonly connection: TcpConnection;
  readonly fd: number;
  readonly counter: number;
  peer: TcpSide | undefined;
  isReadable = false;
  isWritable = true;
  /** The stream has come to its end, by a FIN or an error: nothing more can be read. */
  hasEnded = false;
  /** We have ended the stream that leads to this side. */
  isShut = false;
  /** Bytes read here that the peer has not taken yet: in `pipe`, or `rest` from `restOffset` on. */
  pending = 0;
  #mayHaveMore = false;
  /** The stream ends cleanly with what can be read now. */
  #endIsNear = false;
  /** The portion of a turn was spent. */
  #isQueued = false;
  /** How long an endpoint may leave something unanswered; 0: no matter how long. */
  readonly #userTimeoutMs: number;
  #unansweredSinceMs = NEVER;
  #bulk = 0;
  #pipe: Pipe | undefined;
  #rest: Memory | undefined;
  #restOffset = 0;

  constructor(connection: TcpConnection, fd: number, role: 'client' | 'endpoint') {
    super();
    this.connection = connection;
    this.fd = fd;
    this.counter = COUNTER[role === 'client' ? 'receivedBytes' : 'sentBytes'];
    this.#userTimeoutMs = role === 'client' ? 0 : connection.port.worker.options.tcpUserTimeoutMs;
  }

  /** The stream ends behind what can be read, which may be more than the peer takes for now. */
  get endIsNear(): boolean {
    return this.#endIsNear;
  }

  onEvents(events: number): void {
    if (events & EPOLLOUT) this.isWritable = true;
    if (events & SOMETHING_TO_READ) {
      this.isReadable = true;
      if (events & MORE_BEHIND) this.#mayHaveMore = true;
      if (events & EPOLLPRI) this.#keepUrgentByte();
      this.#endIsNear = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) === EPOLLRDHUP;
    }
    this.connection.onSideEvents(this, events);
  }

  onShutdown(): void {
    this.connection.cut();
  }

  describe(): LiveRecord | undefined {
    return this.connection.describe(this);
  }

  listing(port: PortState): OpenConnection | undefined {
    return this.connection.listing(this, port);
  }

  endpointsGone(port: PortState, names: ReadonlySet<string>): void {
    this.connection.endpointsGone(port, names);
  }

  record(): SideRecord {
    const { fd, hasEnded, isShut, pending } = this;
    const [pipe, rest] = [this.#pipe, this.#rest];
    return {
      fd,
      hasEnded,
      isShut,
      ...(rest && { rest: new Uint8Array(rest.bytes.subarray(this.#restOffset, this.#restOffset + pending)) }),
      ...(pipe && { piped: { readEnd: pipe.readEnd, writeEnd: pipe.writeEnd, pending } }),
    };
  }

  /** Goes on where the side of this record was. What happened to the socket since then is told when it is watched. */
  resume({ hasEnded, isShut, rest, piped }: SideRecord): void {
    this.hasEnded = hasEnded;
    this.isShut = isShut;
    this.isReadable = !hasEnded;
    if (rest !== undefined) this.#keep(Buffer.from(rest.buffer, rest.byteOffset, rest.length));
    if (piped !== undefined) {
      this.#pipe = this.connection.port.worker.pipes.adopt(piped);
      this.pending = piped.pending;
    }
    this.wasSent();
  }

  run(): void {
    this.#isQueued = false;
    this.connection.onPortion(this);
  }

  /** Bytes or an end went out to this side. */
  wasSent(): void {
    if (this.#userTimeoutMs === 0 || this.list !== undefined) return;
    this.#unansweredSinceMs = NEVER;
    this.#lookLater();
  }

  onDue(): void {
    if (unacknowledgedBytes(this.fd) <= 0) return;
    const state = peerState(this.fd);
    if (state === undefined) return;
    const { nowMs } = this.connection.port.worker.loop;
    this.#unansweredSinceMs = unansweredSinceMs(state, this.#unansweredSinceMs, nowMs);
    if (isDead(state, nowMs - this.#unansweredSinceMs, this.#userTimeoutMs)) this.connection.onDead(this);
    else this.#lookLater();
  }

  /**
   * Moves what can be moved from here to the peer. Returns the side that turned out to be broken: this one when reading
   * failed, the peer when writing did.
   */
  pump(): TcpSide | undefined {
    const peer = this.peer;
    // Having spent its portion it waits for its turn, for others do, too.
    if (peer === undefined || this.#isQueued) return undefined;
    const { share } = this.connection.port.worker;
    for (let left = share.portion(); ; ) {
      while (this.pending > 0) {
        if (!peer.isWritable) return undefined;
        if (!this.#flush(peer)) return peer;
      }
      if (!this.isReadable || this.hasEnded) return undefined;
      if (left <= 0) {
        this.#isQueued = true;
        share.await(this);
        return undefined;
      }
      const moved = this.#take(peer, left);
      if (moved === FAILED_HERE) return this;
      if (moved === FAILED_THERE) return peer;
      share.moved(moved);
      left -= moved;
    }
  }

  /** What is still inside is lost. */
  release(): void {
    const { pipes } = this.connection.port.worker;
    if (this.#pipe !== undefined) pipes.discard(this.#pipe);
    this.#pipe = undefined;
    this.#rest = undefined;
    this.pending = 0;
    this.cancelDeadline();
  }

  #lookLater(): void {
    const { loop } = this.connection.port.worker;
    loop.deadlines.after(lookIntervalMs(this.#userTimeoutMs)).start(this, loop.nowMs);
  }

  /** Bytes moved, or one of the two failures. */
  #take(peer: TcpSide, atMost: number): number {
    return this.#bulk > 0 ? this.#spliceIn(peer, atMost) : this.#copy(peer);
  }

  /** One read and, at best, one write. Bytes moved, or one of the two failures. */
  #copy(peer: TcpSide): number {
    const { scratch } = this.connection.port.worker;
    const received = recv(this.fd, scratch, 0, SCRATCH_BYTES);
    if (received <= 0) return this.#nothingRead(received);
    this.#counted(received);
    if (received === SCRATCH_BYTES) {
      if (this.#bulk !== NEVER_BULK) this.#bulk = BULK_PATIENCE;
    } else if (!this.#mayHaveMore) {
      this.isReadable = false;
    }
    // The end goes with the last bytes then, in one packet.
    const isLast = this.#endIsNear && received < SCRATCH_BYTES;
    const sent = send(peer.fd, scratch, 0, received, isLast ? MSG_MORE : 0);
    if (sent > 0) peer.wasSent();
    if (sent === received) return received;
    if (sent < 0 && sent !== -EAGAIN) return FAILED_THERE;
    if (sent === -EAGAIN) peer.isWritable = false;
    this.#keep(scratch.bytes.subarray(Math.max(sent, 0), received));
    return received;
  }

  #spliceIn(peer: TcpSide, atMost: number): number {
    const { pipes } = this.connection.port.worker;
    this.#pipe ??= pipes.take();
    if (this.#pipe === undefined) {
      this.#bulk = 0;
      return 0;
    }
    const length = pipes.areScarce ? SCRATCH_BYTES : Math.min(Math.max(atMost, SCRATCH_BYTES), this.#pipe.capacity);
    const moved = splice(this.fd, this.#pipe.writeEnd, length);
    if (moved > 0) {
      this.#counted(moved);
      this.pending = moved;
      this.#bulk = moved < SCRATCH_BYTES ? this.#bulk - 1 : BULK_PATIENCE;
      return moved;
    }
    this.#givePipe();
    // Splicing stops before urgent data, and calls that an end once the FIN is there, too: only recv tells the truth.
    if (moved === 0) return this.#copy(peer);
    if (!CANNOT_SPLICE.has(-moved)) return this.#nothingRead(moved);
    this.#bulk = NEVER_BULK;
    return 0;
  }

  /**
   * Urgent data: the byte stays in its place in the stream, as RFC 6093 wants it, and is not urgent any more. Without
   * this the kernel leaves it out, and what splices never gets past it. Clients have it from their listener.
   */
  #keepUrgentByte(): void {
    setOption(this.fd, URGENT_IN_LINE);
    this.#bulk = NEVER_BULK;
  }

  #nothingRead(result: number): number {
    this.isReadable = false;
    if (result === -EAGAIN) {
      this.#mayHaveMore = false;
      return 0;
    }
    this.hasEnded = true;
    return result === 0 ? 0 : FAILED_HERE;
  }

  /** False when the peer is broken. */
  #flush(peer: TcpSide): boolean {
    return this.#rest === undefined ? this.#flushPipe(peer) : this.#flushRest(peer, this.#rest);
  }

  #flushRest(peer: TcpSide, rest: Memory): boolean {
    const sent = send(peer.fd, rest, this.#restOffset, this.pending);
    if (sent < 0) return this.#notTaken(peer, sent);
    peer.wasSent();
    this.connection.moved();
    this.#restOffset += sent;
    this.pending -= sent;
    if (this.pending === 0) this.#rest = undefined;
    return true;
  }

  #flushPipe(peer: TcpSide): boolean {
    const pipe = this.#pipe as Pipe;
    const sent = splice(pipe.readEnd, peer.fd, this.pending);
    if (sent < 0) {
      if (CANNOT_SPLICE.has(-sent)) this.#emptyPipe(pipe, NEVER_BULK);
      else if (!this.#notTaken(peer, sent)) return false;
      // It stalls: with so little inside it leaves the pipe to a stream that moves.
      else if (this.pending <= SCRATCH_BYTES && this.connection.port.worker.pipes.areScarce) this.#emptyPipe(pipe, 0);
      return true;
    }
    peer.wasSent();
    this.connection.moved();
    this.pending -= sent;
    if (this.pending === 0) this.#givePipe();
    return true;
  }

  #notTaken(peer: TcpSide, error: number): boolean {
    peer.isWritable = false;
    return error === -EAGAIN;
  }

  /** Goes on by copying, with what is inside first. */
  #emptyPipe(pipe: Pipe, bulk: number): void {
    const rest = new Memory(this.pending);
    let taken = 0;
    while (taken < this.pending) {
      const got = read(pipe.readEnd, rest, taken, this.pending - taken);
      if (got <= 0) throw new Error(`a pipe that should hold ${this.pending} bytes ended after ${taken}`);
      taken += got;
    }
    this.#bulk = bulk;
    this.#givePipe();
    this.#rest = rest;
    this.#restOffset = 0;
  }

  #keep(bytes: Buffer): void {
    const rest = new Memory(bytes.length);
    bytes.copy(rest.bytes);
    this.#rest = rest;
    this.#restOffset = 0;
    this.pending = bytes.length;
  }

  #givePipe(): void {
    if (this.#pipe !== undefined) this.connection.port.worker.pipes.give(this.#pipe);
    this.#pipe = undefined;
  }

  #counted(bytes: number): void {
    const { port, target } = this.connection;
    add(port.counters, this.counter, bytes);
    if (target !== undefined) add(target.counters, this.counter, bytes);
    this.connection.moved();
  }
}

const FAILED_HERE = -1;
const FAILED_THERE = -2;
