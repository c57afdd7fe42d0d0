import { read, splice } from '../../../sys/descriptor.ts';
import { EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP } from '../../../sys/epoll.ts';
import { Memory } from '../../../sys/memory.ts';
import {
  MSG_MORE,
  type PeerState,
  peerState,
  recv,
  send,
  setOption,
  shutdownWrite,
  unacknowledgedBytes,
} from '../../../sys/socket.ts';
import { EAGAIN, EINVAL, EIO, ENOMEM, ENOSYS, EPERM } from '../../../sys/sys-error.ts';
import { TcpSide as CoreTcpSide, type SideOwner } from '../../core/tcp-side.ts';
import { URGENT_IN_LINE } from './endpoint-sockets.ts';
import type { Task } from './event-loop.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { Pipe } from './pipe-pool.ts';
import type { Port } from './port.ts';
import type { SideRecord } from './records.ts';
import { SCRATCH_BYTES, type WorkerContext } from './worker-context.ts';

/**
 * Edge-triggered: a socket is registered once, and a drained socket costs the kernel nothing per turn. In return,
 * reading must go on until EAGAIN or a short read, and writing until EAGAIN. A stream that spends its portion goes on
 * in the next turn.
 */
export const SIDE_EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET;

/**
 * After these events a short read does not mean that there is no more: an end or an error may follow the bytes, and
 * reading stops short at urgent data.
 */
const MORE_BEHIND = EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI;
const SOMETHING_TO_READ = EPOLLIN | MORE_BEHIND;

/** After this many reads below {@link SCRATCH_BYTES} in a row a bulk stream counts as one of messages again. */
const BULK_PATIENCE = 8;
const NEVER_BULK = -1;

/**
 * Splicing failed, but the socket is fine. Other errors must end the stream here: the kernel reports an error once, and
 * the next read looks like a clean end.
 */
const CANNOT_SPLICE: ReadonlySet<number> = new Set([EINVAL, EIO, ENOMEM, ENOSYS, EPERM]);

/** So many stalled bytes of each stream count nowhere: descriptors limit how many streams there are. */
const FREE_STALLED_BYTES = 4 << 10;

const FAILED_HERE = -1;
const FAILED_THERE = -2;

/** What a side tells its connection. */
interface Connection extends SideOwner {
  readonly port: Port;
  /** This side's stream has another portion of a turn. */
  onPortion(side: TcpSide): void;
}

/** A side of a worker: one descriptor, read and written by `recv` and `send`, or by `splice`. */
export class TcpSide extends CoreTcpSide<Connection> implements Task {
  readonly fd: number;
  isWritable = true;
  readonly #worker: WorkerContext;
  /** Unless its socket cannot be used again. */
  readonly #kind: SocketKind | undefined;
  #mayHaveMore = false;
  /** It has spent its portion of the turn. */
  #isQueued = false;
  #bulk = 0;
  /** {@link pending} bytes are in here, or in `rest` from `restOffset` on. */
  #pipe: Pipe | undefined;
  #rest: Memory | undefined;
  #restOffset = 0;

  constructor(connection: Connection, fd: number, role: 'client' | 'endpoint', kind?: SocketKind) {
    super(connection, role);
    this.fd = fd;
    this.#worker = connection.port.worker;
    this.#kind = kind;
  }

  note(events: number): void {
    if (events & EPOLLOUT) this.isWritable = true;
    if (events & SOMETHING_TO_READ) {
      this.isReadable = true;
      if (events & MORE_BEHIND) this.#mayHaveMore = true;
      if (events & EPOLLPRI) this.#keepUrgentByte();
      this.endIsNear = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) === EPOLLRDHUP;
    }
  }

  record(): SideRecord {
    const { fd, total, hasEnded, isShut, pending } = this;
    const [pipe, rest] = [this.#pipe, this.#rest];
    return {
      fd,
      total,
      hasEnded,
      isShut,
      ...(rest && { rest: new Uint8Array(rest.bytes.subarray(this.#restOffset, this.#restOffset + pending)) }),
      ...(pipe && { piped: { readEnd: pipe.readEnd, writeEnd: pipe.writeEnd, pending } }),
    };
  }

  /** Another worker goes on with it. */
  leave(): void {
    if (this.#pipe !== undefined) this.#worker.pipes.forget();
    this.#pipe = undefined;
    super.release();
    this.#hold(undefined);
  }

  /** Continues a side of another process or worker. epoll reports what happened to the socket since then. */
  resume({ total, hasEnded, isShut, rest, piped }: SideRecord): void {
    this.total = total;
    this.hasEnded = hasEnded;
    this.isShut = isShut;
    this.isReadable = !hasEnded;
    if (rest !== undefined) this.#keep(Buffer.from(rest.buffer, rest.byteOffset, rest.length));
    if (piped !== undefined) {
      this.#pipe = this.#worker.pipes.adopt(piped);
      this.pending = piped.pending;
    }
    this.wasSent();
  }

  beginWith(header: Buffer): void {
    this.#keep(header);
  }

  run(): void {
    this.#isQueued = false;
    try {
      this.owner.onPortion(this);
    } catch (err) {
      this.#worker.loop.onFault(err, this.owner);
    }
  }

  pump(): this | undefined {
    const peer = this.peer;
    // It has spent its portion and waits for the others.
    if (peer === undefined || this.#isQueued) return undefined;
    const { turnBudget } = this.#worker;
    for (let left = turnBudget.portion(); ; ) {
      while (this.pending > 0) {
        if (!peer.isWritable) return undefined;
        if (!this.#flush(peer)) return peer;
      }
      if (!this.isReadable || this.hasEnded) return undefined;
      if (left <= 0) {
        this.#isQueued = true;
        turnBudget.await(this);
        return undefined;
      }
      const moved = this.#take(peer, left);
      if (moved === FAILED_HERE) return this;
      if (moved === FAILED_THERE) return peer;
      turnBudget.moved(moved);
      left -= moved;
    }
  }

  end(): void {
    shutdownWrite(this.fd);
  }

  close(): void {
    this.#worker.loop.close(this.fd);
  }

  reset(): void {
    this.#worker.loop.reset(this.fd);
  }

  override retire(): void {
    this.#worker.endpointSockets.parkTcp(this.fd, this.#kind, this.isShut);
  }

  override release(): void {
    super.release();
    if (this.#pipe !== undefined) this.#worker.pipes.discard(this.#pipe);
    this.#pipe = undefined;
    this.#hold(undefined);
  }

  get unacknowledgedBytes(): number {
    return unacknowledgedBytes(this.fd);
  }

  protected get peerState(): PeerState | undefined {
    return peerState(this.fd);
  }

  #take(peer: this, atMost: number): number {
    return this.#bulk > 0 ? this.#spliceIn(peer, atMost) : this.#copy(peer);
  }

  /** One read and, at best, one write. Bytes moved, or one of the two failures. */
  #copy(peer: this): number {
    const { scratch } = this.#worker;
    const length = this.#mostToHold;
    const received = recv(this.fd, scratch, 0, length);
    if (received <= 0) return this.#nothingRead(received);
    this.counted(received);
    if (received === length) {
      if (length === SCRATCH_BYTES && this.#bulk !== NEVER_BULK) this.#bulk = BULK_PATIENCE;
    } else if (this.endIsNear && this.#bulk !== NEVER_BULK) {
      // Before the end only urgent data stop a read. Reading the end itself would cost one more call.
      this.isReadable = false;
      this.hasEnded = true;
    } else if (!this.#mayHaveMore) {
      this.isReadable = false;
    }
    // The FIN then goes out with the last bytes, in one packet.
    const sent = send(peer.fd, scratch, 0, received, this.hasEnded ? MSG_MORE : 0);
    if (sent > 0) peer.wasSent();
    if (sent === received) return received;
    if (sent < 0 && sent !== -EAGAIN) return FAILED_THERE;
    if (sent === -EAGAIN) peer.isWritable = false;
    this.#keep(scratch.bytes.subarray(Math.max(sent, 0), received));
    return received;
  }

  #spliceIn(peer: this, atMost: number): number {
    const { pipes } = this.#worker;
    this.#pipe ??= pipes.take();
    if (this.#pipe === undefined) {
      this.#bulk = 0;
      return 0;
    }
    const length = pipes.areScarce ? SCRATCH_BYTES : Math.min(Math.max(atMost, SCRATCH_BYTES), this.#pipe.capacity);
    const moved = splice(this.fd, this.#pipe.writeEnd, length);
    if (moved > 0) {
      this.counted(moved);
      this.pending = moved;
      this.#bulk = moved < SCRATCH_BYTES ? this.#bulk - 1 : BULK_PATIENCE;
      return moved;
    }
    this.#givePipe();
    // Splicing stops before urgent data, and once the FIN is there it reports an end: only recv knows better.
    if (moved === 0) return this.#copy(peer);
    if (!CANNOT_SPLICE.has(-moved)) return this.#nothingRead(moved);
    this.#bulk = NEVER_BULK;
    return 0;
  }

  /**
   * The urgent byte stays in its place in the stream (RFC 6093). Without this option the kernel leaves it out, and
   * splicing never gets past it. Clients' sockets inherit the option from their listener.
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
  #flush(peer: this): boolean {
    return this.#rest === undefined ? this.#flushPipe(peer) : this.#flushRest(peer, this.#rest);
  }

  #flushRest(peer: this, rest: Memory): boolean {
    const sent = send(peer.fd, rest, this.#restOffset, this.pending);
    if (sent < 0) return this.#notTaken(peer, sent);
    peer.wasSent();
    this.owner.moved();
    this.#restOffset += sent;
    this.pending -= sent;
    if (this.pending === 0) this.#hold(undefined);
    return true;
  }

  #flushPipe(peer: this): boolean {
    const pipe = this.#pipe as Pipe;
    const sent = splice(pipe.readEnd, peer.fd, this.pending);
    if (sent < 0) {
      if (CANNOT_SPLICE.has(-sent)) this.#emptyPipe(pipe, NEVER_BULK);
      else if (!this.#notTaken(peer, sent)) return false;
      // It stalls with few bytes inside: leave the pipe to a stream that moves.
      else if (this.pending <= this.#mostToHold && this.#worker.pipes.areScarce) this.#emptyPipe(pipe, 0);
      return true;
    }
    peer.wasSent();
    this.owner.moved();
    this.pending -= sent;
    if (this.pending === 0) this.#givePipe();
    return true;
  }

  #notTaken(peer: this, error: number): boolean {
    peer.isWritable = false;
    return error === -EAGAIN;
  }

  /** Copies from now on, first the bytes in the pipe. */
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
    this.#hold(rest);
  }

  #keep(bytes: Buffer): void {
    const rest = new Memory(bytes.length);
    bytes.copy(rest.bytes);
    this.#hold(rest);
    this.pending = bytes.length;
  }

  #hold(rest: Memory | undefined): void {
    const { stalledBytes } = this.#worker.shares;
    stalledBytes.take(stalled(rest) - stalled(this.#rest), this.owner.port.share);
    this.#rest = rest;
    this.#restOffset = 0;
  }

  /** All that is read may have to be kept. */
  get #mostToHold(): number {
    const mayTake = this.#worker.shares.stalledBytes.mayTake(this.owner.port.share);
    return mayTake ? SCRATCH_BYTES : FREE_STALLED_BYTES;
  }

  #givePipe(): void {
    if (this.#pipe !== undefined) this.#worker.pipes.give(this.#pipe);
    this.#pipe = undefined;
  }
}

/** How many of these bytes count. */
function stalled(rest: Memory | undefined): number {
  return rest === undefined ? 0 : Math.max(0, rest.length - FREE_STALLED_BYTES);
}
