import { Socket } from 'node:net';
import type { PeerState } from '../../sys/socket.ts';
import { Deadline } from '../core/deadlines.ts';
import { TcpSide } from '../core/tcp-side.ts';
import { lookIntervalMs } from '../dead-peer.ts';
import type { KernelSockets } from './kernel-sockets.ts';
import type { Port } from './port.ts';
import type { TcpConnection } from './tcp-connection.ts';

/** What was received and not read when a connection broke, or will hold it. */
export type Rest = Buffer[];

/** A socket that knows its side, so that all share their handlers: own ones cost a client that waits 0.3 KiB. */
type SideSocket = Socket & { [SIDE]: NodeSide };
const SIDE = Symbol('side');

/**
 * A side that pulls: it reads its socket only while the peer takes what was read, so Node holds at most one high-water
 * mark (64 KiB) of each stream. While a connection is dialled for, Node reads that much already, because it reports a
 * reset only of a socket that it reads.
 */
export class NodeSide extends TcpSide<TcpConnection> {
  readonly socket: Socket;
  readonly #kernel: KernelSockets | undefined;
  readonly #rest: Rest;
  /** While it is not read, Node does not notice that the stream ends. */
  #stall: Deadline | undefined;
  /** One for all writes to this side, and none for a client that waits. */
  #onTaken: ((err?: Error | null) => void) | undefined;

  constructor(
    connection: TcpConnection,
    socket: Socket,
    role: 'client' | 'endpoint',
    rest = keepRest(connection, socket),
  ) {
    super(connection, role);
    this.socket = socket;
    this.#kernel = connection.port.setup.kernel;
    this.#rest = rest;
    (socket as SideSocket)[SIDE] = this;
    socket.on('error', onError);
    socket.on('readable', onReadable);
    socket.on('end', onEnd);
    socket.on('close', onClose);
  }

  pump(): this | undefined {
    const { peer } = this;
    if (peer === undefined) return undefined;
    while (this.pending > 0 || (this.isReadable && !this.hasEnded)) {
      if (peer.socket.destroyed) return peer;
      if (this.pending > 0) {
        this.#lookLater();
        return undefined;
      }
      const chunk: Buffer | null = this.socket.read() ?? this.#rest.shift() ?? null;
      if (chunk === null) {
        this.isReadable = false;
        if (!this.socket.destroyed) return undefined;
        this.hasEnded = true;
        return this;
      }
      this.counted(chunk.length);
      this.#give(peer, chunk);
    }
    return undefined;
  }

  beginWith(header: Buffer): void {
    if (this.peer !== undefined) this.#give(this.peer, header);
  }

  end(): void {
    this.socket.end();
  }

  close(): void {
    this.socket.destroy();
  }

  reset(): void {
    reset(this.socket);
  }

  /** An event of its socket. */
  changed(isBroken = false): void {
    this.isReadable = true;
    if (!this.owner.isOver) this.owner.onSide(this, false, isBroken);
  }

  override release(): void {
    super.release();
    this.#stall?.cancel();
  }

  get unacknowledgedBytes(): number {
    return this.#kernel?.unacknowledgedBytes(this.socket) ?? 0;
  }

  protected get peerState(): PeerState | undefined {
    return this.#kernel?.peerState(this.socket);
  }

  #give(peer: this, bytes: Buffer): void {
    peer.#write(bytes);
    this.pending = peer.socket.writableLength;
    peer.wasSent();
  }

  #write(bytes: Buffer): void {
    this.#onTaken ??= (err) => this.#taken(err);
    this.socket.write(bytes, this.#onTaken);
  }

  /** The kernel has taken what was written to this side. */
  #taken(err: Error | null | undefined): void {
    const { peer } = this;
    if (err || peer === undefined || peer.pending === 0 || this.owner.isOver) return;
    peer.pending = this.socket.writableLength;
    this.owner.moved();
    this.owner.onPortion(peer);
  }

  #lookLater(): void {
    if (this.#stall?.isWaiting || this.endIsNear || this.hasEnded) return;
    const { loop, options } = this.owner.port.thread;
    const { tcpUserTimeoutMs, tcpHalfOpenTimeoutMs } = options;
    this.#stall ??= new Deadline({ onDue: () => this.#lookForEnd() });
    loop.start(this.#stall, lookIntervalMs(Math.min(tcpUserTimeoutMs || tcpHalfOpenTimeoutMs, tcpHalfOpenTimeoutMs)));
  }

  /** Its end waits behind bytes that the peer does not take. */
  #lookForEnd(): void {
    if (this.pending === 0) return;
    this.endIsNear = this.peerState?.hasEnded ?? false;
    this.changed();
  }
}

/** 'close' follows every error and handles it. Without a listener, an error would end the process. */
function onError(): void {}

function onReadable(this: SideSocket): void {
  this[SIDE].changed();
}

function onEnd(this: SideSocket): void {
  this[SIDE].hasEnded = true;
  this[SIDE].changed();
}

function onClose(this: SideSocket, hadError: boolean): void {
  if (hadError) this[SIDE].changed(true);
}

/** Node throws away unread bytes when a connection breaks, also while connecting. */
export function keepRest({ port }: { readonly port: Port }, socket: Socket, beforeClose?: () => void): Rest {
  const rest: Rest = [];
  socket._destroy = (err, callback) => {
    beforeClose?.();
    if (err !== null) {
      const read: Buffer | null = socket.read();
      if (read !== null) rest.push(read);
      rest.push(...(port.setup.kernel?.readRest(socket) ?? []));
    }
    Socket.prototype._destroy.call(socket, err, callback);
  };
  return rest;
}

/**
 * Ends a connection with a RST, which the peer cannot take for a clean end. Safe to call at any time.
 *
 * libuv refuses to reset while a shutdown of the writing side is under way (`uv_tcp_close_reset` gives EINVAL), and
 * Node then leaks the descriptor. That is so from the last write's end until 'finish', one turn of the event loop.
 */
export function reset(socket: Socket): void {
  if (socket.destroyed) return;
  const isShuttingDown = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (isShuttingDown) socket.once('finish', () => socket.resetAndDestroy());
  else socket.resetAndDestroy();
}
