import type { DialFailure } from '../../model/data-plane.ts';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import { canSee } from '../../services/known-clients.ts';
import { type Candidates, dialTimeoutMs, LONGEST_DIALLING_MS } from '../../services/picker.ts';
import { LOST_CLIENT } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import { Deadline } from './deadlines.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';

/** Whose dial it is. A dial ends with one of the first two calls, unless it is cancelled. */
export interface Dialler<Each extends Target> {
  readonly port: Port<Each>;
  /** The endpoint has answered. Its socket is the dialler's from now on. */
  onConnected(attempt: TcpAttempt<Each>): void;
  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void;
  /** One endpoint did not answer. */
  onFailed(target: Each, reason: DialFailure): void;
  /** Another one is tried. */
  onRetry(): void;
  /** `quietMs`: the part of its time after which {@link TcpDial.onQuiet} is called; 0 for never. */
  newAttempt(dial: TcpDial<Each>, target: Each, timeoutMs: number, quietMs: number): TcpAttempt<Each>;
}

/**
 * Tries candidates one after another until one answers. If the first is silent, a second may be tried at the same time
 * ({@link Port.mayHedge}); the first to answer is used.
 */
export class TcpDial<Each extends Target = Target> {
  readonly dialler: Dialler<Each>;
  /** If endpoints see its address. */
  readonly client: KeptClient | undefined;
  readonly #candidates: Candidates<Each>;
  readonly #startedMs: number;
  #tries: number;
  #isStarting = false;
  #isOver = false;
  attempt: TcpAttempt<Each> | undefined;
  /** Beside the first. */
  hedge: TcpAttempt<Each> | undefined;

  /** `tries`: endpoints that were tried before. */
  constructor(dialler: Dialler<Each>, candidates: Candidates<Each>, client: KeptClient | undefined, tries: number) {
    this.dialler = dialler;
    this.client = client;
    this.#candidates = candidates;
    this.#tries = tries;
    this.#startedMs = dialler.port.thread.nowMs;
  }

  get port(): Port<Each> {
    return this.dialler.port;
  }

  /** The endpoint of the current attempt. */
  get endpoint(): NamedEndpoint | undefined {
    return (this.attempt ?? this.hedge)?.target.endpoint;
  }

  /** May be over before it returns. */
  start(): void {
    // A loop, not a recursion: each of many endpoints may fail at once.
    this.#isStarting = true;
    while (!this.#isOver && this.attempt === undefined) this.#tryNext();
    this.#isStarting = false;
  }

  cancel(): void {
    this.#isOver = true;
    this.attempt?.leave();
    this.hedge?.leave();
  }

  onAnswered(attempt: TcpAttempt<Each>): void {
    this.#end(attempt);
    // The other one.
    this.cancel();
    this.port.joined(attempt.target, attempt.tookMs);
    this.dialler.onConnected(attempt);
  }

  onFailed(attempt: TcpAttempt<Each>, reason: DialFailure): void {
    this.#end(attempt);
    this.dialler.onFailed(attempt.target, reason);
    if (this.attempt === undefined && this.hedge === undefined && !this.#isStarting) this.start();
  }

  /** There has been no answer for the first part of its time. */
  onQuiet(attempt: TcpAttempt<Each>): void {
    if (!this.port.mayHedge()) return;
    const target = this.#candidates.next();
    // Where no other endpoint is left, the rest of the time is this one's.
    if (target === undefined || target === attempt.target || this.port.picker.isEjected(target)) return;
    this.port.count('hedges', target);
    const timeoutMs = dialTimeoutMs(this.#tries++);
    this.hedge = this.dialler.newAttempt(this, target, timeoutMs, 0);
    this.hedge.begin();
  }

  #tryNext(): void {
    const isLate = this.#tries > 0 && this.port.thread.nowMs - this.#startedMs >= LONGEST_DIALLING_MS;
    const target = isLate ? undefined : this.#candidates.next();
    if (target === undefined) {
      this.#isOver = true;
      this.dialler.onGivenUp(this.#tries === 0 ? 'no-endpoints' : 'exhausted');
      return;
    }
    if (this.#tries > 0) {
      this.port.count('retries', target);
      this.dialler.onRetry();
    }
    const isDoubted = target.isDoubtful && this.port.picker.isEjected(target);
    const timeoutMs = dialTimeoutMs(isDoubted ? 0 : this.#tries);
    const quietMs = this.port.quietMs(this.#tries++, timeoutMs);
    this.attempt = this.dialler.newAttempt(this, target, timeoutMs, quietMs);
    this.attempt.begin();
  }

  #end(attempt: TcpAttempt<Each>): void {
    if (attempt === this.attempt) this.attempt = undefined;
    else this.hedge = undefined;
  }
}

/**
 * One attempt to connect to one endpoint. It takes the target, and gives it back unless the endpoint has answered. It
 * ends with a call of its dial, unless it is left.
 */
export abstract class TcpAttempt<Each extends Target = Target> {
  readonly target: Each;
  readonly #timeoutMs: number;
  protected readonly dial: TcpDial<Each>;
  /** It keeps the client's address. */
  protected isKept = false;
  protected isOver = false;
  /** The endpoint has answered, and reset the connection already. */
  isBroken = false;
  /** The part of its time after which the dial is told, until then; else 0. */
  #quietMs: number;
  /** It has begun again, because it had lost the client's address (`KeptDials.hasLost`). */
  #isSecond = false;
  readonly #deadline = new Deadline(this);
  #beganMs = 0;

  constructor(dial: TcpDial<Each>, target: Each, timeoutMs: number, quietMs: number) {
    this.dial = dial;
    this.target = target;
    this.#timeoutMs = timeoutMs;
    this.#quietMs = quietMs;
    target.taken();
  }

  /** May end it. It begins again where it is still searching for a local port. */
  abstract begin(): void;
  /** Closes its socket. A connection that is established late must not stay open. */
  protected abstract hangUp(): void;
  /** Whether the endpoint sees another address than the client's. */
  protected abstract hasLostClient(client: KeptClient): boolean;

  /** Since it began. */
  get tookMs(): number {
    return this.dial.port.thread.clock.now() - this.#beganMs;
  }

  /** Ends it before it was answered. The endpoint sees at most a connection without a byte. */
  leave(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#deadline.cancel();
    this.hangUp();
    this.target.released();
  }

  onDue(): void {
    if (this.#quietMs > 0) {
      const leftMs = this.#timeoutMs - this.#quietMs;
      this.#quietMs = 0;
      this.#wait(leftMs);
      this.dial.onQuiet(this);
      return;
    }
    this.#needsNewPort();
    this.fail('timeout', `no answer within ${this.#timeoutMs} ms`);
  }

  /** The client if this endpoint sees its address. */
  protected get seenClient(): KeptClient | undefined {
    const { client } = this.dial;
    return client !== undefined && canSee(this.target.endpoint.address, client.address) ? client : undefined;
  }

  /** It connects now. */
  protected begun(): void {
    this.#beganMs = this.dial.port.thread.clock.now();
  }

  /** The endpoint has some time to answer. */
  protected awaitAnswer(): void {
    this.#wait(this.#quietMs > 0 ? this.#quietMs : this.#timeoutMs);
  }

  /** The handshake is over. */
  protected onHandshake(): void {
    const { client } = this.dial;
    if (!this.isKept || client === undefined || !this.hasLostClient(client)) {
      this.answered(false);
      return;
    }
    this.#needsNewPort();
    if (this.#isSecond) {
      this.fail('other', LOST_CLIENT);
      return;
    }
    this.#isSecond = true;
    this.#quietMs = 0;
    this.hangUp();
    this.begin();
  }

  protected answered(isBroken: boolean): void {
    this.isOver = true;
    this.isBroken = isBroken;
    this.#deadline.cancel();
    this.dial.onAnswered(this);
  }

  /** `err`: for people. */
  protected fail(reason: DialFailure, err: string): void {
    this.leave();
    this.dial.onFailed(this, this.dial.port.dialFailedFor(this.target, reason, err, this.tookMs));
  }

  /** Waits no longer for an answer. */
  protected stopWaiting(): void {
    this.#deadline.cancel();
  }

  #wait(ms: number): void {
    this.dial.port.thread.loop.start(this.#deadline, ms);
  }

  #needsNewPort(): void {
    if (this.dial.client !== undefined) this.dial.client.needsNewPort = true;
  }
}

/** Of all dials of a Service port, so that a slow cluster is not dialled twice. */
const HEDGE_SHARE = 0.05;

/** Hedges that may come at once, after a time without any. */
const MAX_HEDGES = 10;

/** When connections of one Service port may be dialled for a second time while the first endpoint is silent. */
export class Hedges {
  readonly #afterMs: number;
  /** The first client of a Service may have one. */
  #credit = 1;

  /** `afterMs`: 0 for none. */
  constructor(afterMs: number) {
    this.#afterMs = afterMs;
  }

  /** After which part of the time of this try of a connection a second endpoint may be dialled; 0: never. */
  quietMs(tries: number, timeoutMs: number, hasAffinity: boolean): number {
    if (this.#afterMs === 0 || tries > 0 || this.#afterMs >= timeoutMs) return 0;
    this.#credit = Math.min(MAX_HEDGES, this.#credit + HEDGE_SHARE);
    // A slow endpoint must not cost a client its affinity.
    return hasAffinity ? 0 : this.#afterMs;
  }

  tryTake(): boolean {
    if (this.#credit < 1) return false;
    this.#credit--;
    return true;
  }
}
