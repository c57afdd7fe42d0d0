import { type ConnectionEntry, type Ending, NO_TRIES, type Tries, TryLog } from '../../model/connection-log.ts';
import type { OpenConnection } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { pastMs } from '../../util/clock.ts';
import type { Port } from './port.ts';
import { add, COUNTER, type Target } from './target.ts';

/** What the connection log will say of it, for another process. */
export interface SessionAccount {
  /** Milliseconds since 1970. */
  readonly beganAt: number;
  /** Absent when no dial failed. */
  readonly tries?: Tries | undefined;
  /** How long it waited for an endpoint. Absent: not at all. */
  readonly waitedMs?: number | undefined;
}

/** The thread that has accepted a session and counts it, as its carrier sees it (docs/adr/0027). */
export interface Home {
  /** It has not died. */
  readonly isThere: boolean;
  answered(): void;
  ended(): void;
}

/** A TCP connection or a UDP flow: from when to when it counts, and its entry in the connection log. */
export abstract class Session<Place extends Port = Port> {
  readonly port: Place;
  isOver = false;
  /** The endpoint that answered. */
  abstract readonly target: Target | undefined;
  /** If another thread is its home, which has not died. */
  protected home: Home | undefined;
  /** By the thread's clock. */
  #beganMs: number;
  #tries: TryLog | undefined;
  /** For an endpoint. */
  protected waitedMs = 0;

  constructor(port: Place, home?: Home) {
    this.port = port;
    this.home = home?.isThere ? home : undefined;
    this.#beganMs = port.thread.nowMs;
  }

  /** Ends it at once: a TCP connection by a reset of both sides. */
  abstract cut(ending: Ending): void;
  /** `undefined` when the client has just gone. */
  abstract describe(): OpenConnection | undefined;

  /** Whether it is this thread that counts it as open. */
  protected get countsHere(): boolean {
    return this.home === undefined;
  }

  get hasLostHome(): boolean {
    return this.home?.isThere === false;
  }

  /** It has lost its home, and goes on: nobody else counts it. */
  stay(): void {
    this.home = undefined;
    this.port.countActive(1, this.target);
  }

  /** The client's address and port, as far as it is known. */
  protected abstract client(): Endpoint | undefined;
  protected abstract bytes(): Pick<ConnectionEntry, 'receivedBytes' | 'sentBytes'>;

  /** A client was accepted, or a flow begun. */
  begun(): void {
    this.port.began(this);
    this.port.count('connections');
    if (this.countsHere) this.port.countActive(1, this.target);
  }

  /** Counts one that another process has counted among `connections`, and continues what it knew. */
  resumed({ beganAt, tries, waitedMs = 0 }: SessionAccount): void {
    this.#beganMs = pastMs(beganAt, this.port.thread);
    if (tries !== undefined) this.follows(new TryLog(tries));
    this.waitedMs = waitedMs;
    this.port.began(this);
    if (this.countsHere) this.port.countActive(1, this.target);
    this.target?.taken();
  }

  /** The endpoint that it is connected to from now on. */
  protected answeredBy(target: Target): void {
    if (this.countsHere) add(target.counters, COUNTER.active, 1);
    this.port.connectedTo(target);
  }

  /** Tries that led to it. */
  follows(tries: TryLog | undefined): void {
    this.#tries = tries;
  }

  /** The tries so far, to be continued. */
  protected get tries(): TryLog {
    this.#tries ??= new TryLog();
    return this.#tries;
  }

  /** For {@link resumed}. */
  protected account(): SessionAccount {
    const { clock } = this.port.thread;
    return {
      beganAt: clock.wallNow() - this.ageMs,
      ...(this.#tries && { tries: this.#tries.value }),
      ...(this.waitedMs > 0 && { waitedMs: this.waitedMs }),
    };
  }

  /** Another thread goes on with it: nothing is closed, and it counts as before. */
  protected detach(): void {
    this.isOver = true;
    this.port.ended(this);
  }

  /** How long ago it began. */
  protected get ageMs(): number {
    return this.port.thread.nowMs - this.#beganMs;
  }

  /** Every connection and flow ends here, once: returns false when it has ended before. */
  protected finish(ending: Ending): boolean {
    if (this.isOver) return false;
    this.detach();
    if (this.countsHere) this.port.countActive(-1, this.target);
    this.target?.released();
    const { admission, connectionLog } = this.port.thread;
    admission.freed();
    if (connectionLog.isWanted) connectionLog.add(this.#entry(ending));
    return true;
  }

  #entry(ending: Ending): ConnectionEntry {
    const { name, protocol, thread } = this.port;
    const { receivedBytes, sentBytes } = this.bytes();
    return {
      name,
      protocol,
      client: this.client(),
      backend: this.target?.name,
      ending,
      endedAt: thread.clock.wallNow(),
      durationMs: thread.clock.now() - this.#beganMs,
      receivedBytes,
      sentBytes,
      tries: this.#tries?.value ?? NO_TRIES,
      ...(this.waitedMs > 0 && { waitedMs: this.waitedMs }),
    };
  }
}
