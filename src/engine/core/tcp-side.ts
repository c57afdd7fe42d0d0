import type { PeerState } from '../../sys/socket.ts';
import { isDead, lookIntervalMs, NEVER, unansweredSinceMs } from '../dead-peer.ts';
import { Deadline } from './deadlines.ts';
import type { Port } from './port.ts';
import { add, COUNTER, type Target } from './target.ts';

export interface SideOwner {
  readonly port: Port;
  readonly target: Target | undefined;
  moved(): void;
  /** The peer of this socket has not acknowledged anything for too long. */
  onDead(side: TcpSide): void;
}

/**
 * One side of a connection, and the stream of bytes that comes from it: they are written to {@link peer}. As a deadline
 * it checks from time to time whether its endpoint's kernel still acknowledges bytes.
 */
export abstract class TcpSide<Owner extends SideOwner = SideOwner> {
  peer: this | undefined;
  /** There may be something to read. */
  isReadable = false;
  /** The stream has ended, by a FIN or an error: nothing more can be read. */
  hasEnded = false;
  /** The stream that leads to this side has been ended by us. */
  isShut = false;
  /** Bytes read here that the peer has not taken yet. */
  pending = 0;
  /** Bytes that have been read here. */
  total = 0;
  /** The stream ends cleanly behind what can be read, which may be more than the peer takes for now. */
  endIsNear = false;
  protected readonly owner: Owner;
  readonly #counter: number;
  /** How long an endpoint may leave bytes unacknowledged; 0: without limit. */
  readonly #userTimeoutMs: number;
  /** Only where {@link #userTimeoutMs} is not 0: a client that waits for its endpoint shall be small. */
  readonly #look: Deadline | undefined;
  #unansweredSinceMs = NEVER;

  constructor(owner: Owner, role: 'client' | 'endpoint') {
    this.owner = owner;
    this.#counter = COUNTER[role === 'client' ? 'receivedBytes' : 'sentBytes'];
    this.#userTimeoutMs = role === 'client' ? 0 : owner.port.thread.options.tcpUserTimeoutMs;
    if (this.#userTimeoutMs > 0) this.#look = new Deadline(this);
  }

  /**
   * Moves bytes from here to the peer. Returns the side that broke: this one if reading failed, the peer if writing
   * did.
   */
  abstract pump(): this | undefined;
  /** What the peer gets before the first byte that is read here. It counts nowhere: the client did not send it. */
  abstract beginWith(header: Buffer): void;
  /** Ends the stream that leads here. Fails only for a broken side, which has an event of its own. */
  abstract end(): void;
  /** The kernel delivers what it holds. */
  abstract close(): void;
  /** The peer of this socket gets a RST. */
  abstract reset(): void;
  /** Bytes that the peer of this socket has not acknowledged; 0 or less where that is not known. */
  abstract readonly unacknowledgedBytes: number;
  /** `undefined` where that is not known. */
  protected abstract readonly peerState: PeerState | undefined;

  /** In place of {@link close} when both directions have ended. */
  retire(): void {
    this.close();
  }

  /** Unsent bytes are lost. */
  release(): void {
    this.pending = 0;
    this.#look?.cancel();
  }

  /** Bytes or an end were sent to this side. */
  wasSent(): void {
    if (this.#look === undefined || this.#look.isWaiting) return;
    this.#unansweredSinceMs = NEVER;
    this.#lookLater(this.#look);
  }

  onDue(): void {
    if (this.unacknowledgedBytes <= 0) return;
    const state = this.peerState;
    if (state === undefined) return;
    const { nowMs } = this.owner.port.thread;
    this.#unansweredSinceMs = unansweredSinceMs(state, this.#unansweredSinceMs, nowMs);
    if (isDead(state, nowMs - this.#unansweredSinceMs, this.#userTimeoutMs)) this.owner.onDead(this);
    else if (this.#look !== undefined) this.#lookLater(this.#look);
  }

  /** Bytes were read here. */
  protected counted(bytes: number): void {
    const { port, target } = this.owner;
    this.total += bytes;
    add(port.counters, this.#counter, bytes);
    if (target !== undefined) add(target.counters, this.#counter, bytes);
    this.owner.moved();
  }

  #lookLater(look: Deadline): void {
    this.owner.port.thread.loop.start(look, lookIntervalMs(this.#userTimeoutMs));
  }
}
