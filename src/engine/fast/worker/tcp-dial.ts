import type { DialFailure } from '../../../model/data-plane.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { type Candidates, dialTimeoutMs, LONGEST_DIALLING_MS } from '../../../services/picker.ts';
import type { KeptClient } from '../../kept-dials.ts';
import type { Handler } from './event-loop.ts';
import type { SocketKind } from './parked-sockets.ts';
import type { Port } from './port.ts';
import type { Target } from './target.ts';
import { type Attempting, TcpAttempt } from './tcp-attempt.ts';

/** `fd` is connected, watched for `SIDE_EVENTS`, and the dialler's from now on. */
export interface DialResult {
  readonly target: Target;
  readonly fd: number;
  /** What it has had. */
  readonly events: number;
  /** It was connected and has been reset already. No event will report that again. */
  readonly isBroken: boolean;
  /** See {@link TcpAttempt.kind}. */
  readonly kind: SocketKind | undefined;
}

/** A dial ends with one of the two calls, unless it is cancelled. The dialler handles the events of the descriptors. */
export interface Dialler extends Handler {
  onConnected(result: DialResult): void;
  onGivenUp(reason: 'no-endpoints' | 'exhausted'): void;
  /** One endpoint did not answer. */
  onFailed(target: Target, reason: DialFailure): void;
  /** Another one is tried. */
  onRetry(): void;
}

interface TcpDialSetup {
  readonly port: Port;
  readonly candidates: Candidates<Target>;
  /** Endpoints that were tried before. */
  readonly tries?: number;
  readonly client: KeptClient | undefined;
  readonly dialler: Dialler;
}

/**
 * Tries candidates one after another until one answers. If the first is silent, a second may be tried at the
 * same time ({@link Port.mayHedge}); the first to answer is used.
 */
export class TcpDial implements Attempting {
  readonly port: Port;
  readonly client: KeptClient | undefined;
  readonly handler: Dialler;
  readonly #candidates: Candidates<Target>;
  readonly #startedMs: number;
  #tries: number;
  #attempt: TcpAttempt | undefined;
  #hedge: TcpAttempt | undefined;

  /** `client`: if endpoints see its address. */
  constructor({ port, candidates, tries = 0, client, dialler }: TcpDialSetup) {
    this.port = port;
    this.client = client;
    this.handler = dialler;
    this.#candidates = candidates;
    this.#tries = tries;
    this.#startedMs = port.worker.loop.nowMs;
  }

  /** The endpoint of the current attempt. */
  get endpoint(): Endpoint | undefined {
    return (this.#attempt ?? this.#hedge)?.target.endpoint;
  }

  /** May be over before it returns. */
  start(): void {
    // A loop, not a recursion: each of many endpoints may fail at once.
    for (;;) {
      const isLate = this.#tries > 0 && this.port.worker.loop.nowMs - this.#startedMs >= LONGEST_DIALLING_MS;
      const target = isLate ? undefined : this.#candidates.next();
      if (target === undefined) {
        this.handler.onGivenUp(this.#tries === 0 ? 'no-endpoints' : 'exhausted');
        return;
      }
      if (this.#tries > 0) {
        this.port.count('retries', target);
        this.handler.onRetry();
      }
      const timeoutMs = dialTimeoutMs(this.#tries);
      const attempt = new TcpAttempt(this, target, { timeoutMs, quietMs: this.port.quietMs(this.#tries, timeoutMs) });
      this.#tries++;
      this.#attempt = attempt;
      const reason = attempt.begin();
      if (reason === undefined) return;
      this.#attempt = undefined;
      this.handler.onFailed(target, reason);
    }
  }

  cancel(): void {
    this.#attempt?.leave();
    this.#attempt = undefined;
    this.#hedge?.leave();
    this.#hedge = undefined;
  }

  /** `fd`: of an attempt. */
  onEvents(events: number, fd: number): void {
    (fd === this.#attempt?.fd ? this.#attempt : this.#hedge)?.onEvents(events);
  }

  onAnswered(attempt: TcpAttempt, events: number, isBroken: boolean): void {
    if (attempt === this.#attempt) this.#attempt = undefined;
    else this.#hedge = undefined;
    // The other one.
    this.cancel();
    const { target, fd, kind } = attempt;
    this.port.joined(target, attempt.tookMs);
    this.handler.onConnected({ target, fd, events, isBroken, kind });
  }

  onFailed(attempt: TcpAttempt, reason: DialFailure): void {
    if (attempt === this.#attempt) this.#attempt = undefined;
    else this.#hedge = undefined;
    this.handler.onFailed(attempt.target, reason);
    if (this.#attempt === undefined && this.#hedge === undefined) this.start();
  }

  onLost(attempt: TcpAttempt): void {
    const { target, timeoutMs } = attempt;
    const second = new TcpAttempt(this, target, { timeoutMs, quietMs: 0, isSecond: true });
    if (attempt === this.#attempt) this.#attempt = second;
    else this.#hedge = second;
    const reason = second.begin();
    if (reason !== undefined) this.onFailed(second, reason);
  }

  onQuiet(attempt: TcpAttempt): void {
    if (!this.port.mayHedge()) return;
    const target = this.#candidates.next();
    // Where no other endpoint is left, the rest of the time is this one's.
    if (target === undefined || target === attempt.target || this.port.picker.isEjected(target)) return;
    this.port.count('hedges', target);
    const hedge = new TcpAttempt(this, target, { timeoutMs: dialTimeoutMs(this.#tries++), quietMs: 0 });
    this.#hedge = hedge;
    const reason = hedge.begin();
    if (reason === undefined) return;
    this.#hedge = undefined;
    this.handler.onFailed(target, reason);
  }
}
