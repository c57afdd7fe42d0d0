import type { Clock, Timer } from '../util/clock.ts';
import type { Transport } from './transport.ts';

/** With {@link PROBE_DEADLINE_MS} a dead server is noticed 35 s after its last byte; client-go takes up to 45 s. */
const SILENCE_MS = 25_000;

/**
 * Servers send a bookmark every minute, the first one after up to two (observed with 1.37). A watch that misses even
 * these while the server answers probes hangs behind something that answers in the place of its other end, a
 * load balancer for instance; a new one does no harm.
 */
const QUIET_MS = 150_000;

/** While a list is on its way, which the server sends without a pause. It covers an object of 1.5 MiB at 256 kbit/s. */
const LIST_QUIET_MS = 60_000;

/**
 * Watches over a watch. Nothing need ever come on one, so silence alone says nothing: after a while the server is asked
 * something trivial on another connection. That finds a stopped server and a dead network. A connection which the
 * network alone forgot is found by the kernel (`agent-pool.ts`).
 */
export class Vigil {
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #onAlive: () => void;
  readonly #onGone: (reason: unknown) => void;
  readonly #isListing: () => boolean;
  #heardAt: number;
  #aliveAt: number;
  #timer: Timer | undefined;
  #isOver = false;

  constructor({
    transport,
    clock,
    onAlive,
    onGone,
    isListing = () => false,
  }: {
    readonly transport: Transport;
    readonly clock: Clock;
    /** The server has shown that it is there. */
    readonly onAlive: () => void;
    /** Called once: with the failure of a probe, or with {@link QUIET}. */
    readonly onGone: (reason: unknown) => void;
    /** Whether a streamed list is on its way. */
    readonly isListing?: () => boolean;
  }) {
    this.#transport = transport;
    this.#clock = clock;
    this.#onAlive = onAlive;
    this.#onGone = onGone;
    this.#isListing = isListing;
    this.#heardAt = clock.now();
    this.#aliveAt = this.#heardAt;
    this.#arm();
  }

  /** A whole line came: a server that drips bytes is as good as silent. */
  heard(): void {
    this.#heardAt = this.#clock.now();
  }

  stop(): void {
    this.#isOver = true;
    this.#timer?.cancel();
  }

  get #quietMs(): number {
    return this.#isListing() ? LIST_QUIET_MS : QUIET_MS;
  }

  /** Looks when there is something to see, instead of moving a timer with every line. */
  #arm(): void {
    this.#aliveAt = Math.max(this.#aliveAt, this.#heardAt, this.#transport.lastContactAt ?? 0);
    const dueAt = Math.min(this.#aliveAt + SILENCE_MS, this.#heardAt + this.#quietMs);
    this.#timer = this.#clock.after(dueAt - this.#clock.now(), () => void this.#look());
  }

  async #look(): Promise<void> {
    if (this.#clock.now() - this.#heardAt >= this.#quietMs) {
      this.#gone(QUIET);
      return;
    }
    const lastContactAt = Math.max(this.#heardAt, this.#transport.lastContactAt ?? 0);
    if (this.#clock.now() - lastContactAt >= SILENCE_MS) {
      try {
        await this.#transport.probe();
        this.#aliveAt = this.#clock.now();
      } catch (error) {
        this.#gone(error);
        return;
      }
    }
    if (this.#isOver) return;
    this.#onAlive();
    this.#arm();
  }

  #gone(reason: unknown): void {
    if (this.#isOver) return;
    this.stop();
    this.#onGone(reason);
  }
}

/** The server is there, yet the watch has been silent for too long. */
export const QUIET = Symbol('quiet');
