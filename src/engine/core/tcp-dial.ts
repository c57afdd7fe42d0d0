import type { DialFailure } from '../../model/data-plane.ts';
import type { NamedEndpoint } from '../../model/endpoint.ts';
import { type Candidates, dialTimeoutMs, LONGEST_DIALLING_MS } from '../../services/picker.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';

/** How one endpoint is tried. */
export interface AttemptTerms {
  readonly timeoutMs: number;
  /** The part of its time after which {@link Attempting.onQuiet} is called; 0 for never. */
  readonly quietMs: number;
  /** The first has lost the client's address. */
  readonly isSecond?: boolean;
}

/** One attempt to connect to one endpoint. It takes the target, and gives it back unless the endpoint has answered. */
export interface Attempt<Each extends Target> {
  readonly target: Each;
  readonly timeoutMs: number;
  /** Since it began. */
  readonly tookMs: number;
  /** Why it has failed at once; else `undefined`. */
  begin(): DialFailure | undefined;
  /** Ends it before it was answered. The endpoint sees at most a connection without a byte. */
  leave(): void;
}

/** Whoever makes attempts. An attempt that has begun ends with one of the first three calls, unless it is left. */
export interface Attempting<Each extends Target, Result> {
  /** What there is in `result` is the caller's from now on. */
  onAnswered(attempt: Attempt<Each>, result: Result): void;
  onFailed(attempt: Attempt<Each>, reason: DialFailure): void;
  /** It has lost the client's address (`KeptDials.hasLost`), and a second attempt is worth while. */
  onLost(attempt: Attempt<Each>): void;
  /** There has been no answer for the first part of its time. */
  onQuiet(attempt: Attempt<Each>): void;
}

/** A dial ends with one of the first two calls, unless it is cancelled. */
export interface Dialler<Each extends Target, Result> {
  /** `target` has answered. */
  onConnected(target: Each, result: Result): void;
  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void;
  /** One endpoint did not answer. */
  onFailed(target: Each, reason: DialFailure): void;
  /** Another one is tried. */
  onRetry(): void;
}

export interface TcpDialSetup<Each extends Target, Owner> {
  readonly candidates: Candidates<Each>;
  /** Endpoints that were tried before. */
  readonly tries?: number;
  readonly dialler: Owner;
}

/**
 * Tries candidates one after another until one answers. If the first is silent, a second may be tried at the same time
 * ({@link Port.mayHedge}); the first to answer is used.
 */
export abstract class TcpDial<
  Each extends Target,
  Result,
  Owner extends Dialler<Each, Result>,
  Try extends Attempt<Each>,
> implements Attempting<Each, Result>
{
  abstract readonly port: Port<Each>;
  readonly dialler: Owner;
  readonly #candidates: Candidates<Each>;
  readonly #startedMs: number;
  #tries: number;
  protected attempt: Try | undefined;
  protected hedge: Try | undefined;

  constructor(nowMs: number, { candidates, tries = 0, dialler }: TcpDialSetup<Each, Owner>) {
    this.dialler = dialler;
    this.#candidates = candidates;
    this.#tries = tries;
    this.#startedMs = nowMs;
  }

  protected abstract newAttempt(target: Each, terms: AttemptTerms): Try;

  /** The endpoint of the current attempt. */
  get endpoint(): NamedEndpoint | undefined {
    return (this.attempt ?? this.hedge)?.target.endpoint;
  }

  /** May be over before it returns. */
  start(): void {
    // A loop, not a recursion: each of many endpoints may fail at once.
    for (;;) {
      const isLate = this.#tries > 0 && this.port.thread.nowMs - this.#startedMs >= LONGEST_DIALLING_MS;
      const target = isLate ? undefined : this.#candidates.next();
      if (target === undefined) {
        this.dialler.onGivenUp(this.#tries === 0 ? 'no-endpoints' : 'exhausted');
        return;
      }
      if (this.#tries > 0) {
        this.port.count('retries', target);
        this.dialler.onRetry();
      }
      const timeoutMs = dialTimeoutMs(this.#tries);
      const attempt = this.newAttempt(target, { timeoutMs, quietMs: this.port.quietMs(this.#tries, timeoutMs) });
      this.#tries++;
      this.attempt = attempt;
      const reason = attempt.begin();
      if (reason === undefined) return;
      this.attempt = undefined;
      this.dialler.onFailed(target, reason);
    }
  }

  cancel(): void {
    this.attempt?.leave();
    this.attempt = undefined;
    this.hedge?.leave();
    this.hedge = undefined;
  }

  onAnswered(attempt: Attempt<Each>, result: Result): void {
    this.#over(attempt);
    // The other one.
    this.cancel();
    this.port.joined(attempt.target, attempt.tookMs);
    this.dialler.onConnected(attempt.target, result);
  }

  onFailed(attempt: Attempt<Each>, reason: DialFailure): void {
    this.#over(attempt);
    this.dialler.onFailed(attempt.target, reason);
    if (this.attempt === undefined && this.hedge === undefined) this.start();
  }

  onLost(attempt: Attempt<Each>): void {
    const second = this.newAttempt(attempt.target, { timeoutMs: attempt.timeoutMs, quietMs: 0, isSecond: true });
    if (attempt === this.attempt) this.attempt = second;
    else this.hedge = second;
    const reason = second.begin();
    if (reason !== undefined) this.onFailed(second, reason);
  }

  onQuiet(attempt: Attempt<Each>): void {
    if (!this.port.mayHedge()) return;
    const target = this.#candidates.next();
    // Where no other endpoint is left, the rest of the time is this one's.
    if (target === undefined || target === attempt.target || this.port.picker.isEjected(target)) return;
    this.port.count('hedges', target);
    const hedge = this.newAttempt(target, { timeoutMs: dialTimeoutMs(this.#tries++), quietMs: 0 });
    this.hedge = hedge;
    const reason = hedge.begin();
    if (reason === undefined) return;
    this.hedge = undefined;
    this.dialler.onFailed(target, reason);
  }

  #over(attempt: Attempt<Each>): void {
    if (attempt === this.attempt) this.attempt = undefined;
    else this.hedge = undefined;
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
