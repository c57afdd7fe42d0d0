import type { Clock, Timer } from '../../util/clock.ts';

/**
 * How many more turns of the event loop the end may wait because more bytes arrive. After a standstill the kernel's
 * queues hold less than this; a flood never ends.
 */
const MAX_TURNS_BEHIND = 400;

/**
 * Calls `onSilence` once when nothing has moved for `timeoutMs`. A move costs only a reading of the clock.
 *
 * After a standstill of this process, timers run before the bytes that came in time are read. So the end comes at least
 * one turn of the event loop late, and not before a turn in which `received` did not change.
 */
export class SilenceTimer {
  readonly #clock: Clock;
  readonly #onSilence: () => void;
  readonly #received: () => number;
  #timeoutMs: number;
  #lastMovedMs: number;
  #timer: Timer;

  constructor(clock: Clock, timeoutMs: number, onSilence: () => void, received: () => number = () => 0) {
    this.#clock = clock;
    this.#onSilence = onSilence;
    this.#received = received;
    this.#timeoutMs = timeoutMs;
    this.#lastMovedMs = clock.now();
    this.#timer = this.#wait(timeoutMs);
  }

  get leftMs(): number {
    return this.#lastMovedMs + this.#timeoutMs - this.#clock.now();
  }

  moved(): void {
    this.#lastMovedMs = this.#clock.now();
  }

  restart(timeoutMs: number): void {
    this.cancel();
    this.moved();
    this.#timeoutMs = timeoutMs;
    this.#timer = this.#wait(timeoutMs);
  }

  cancel(): void {
    this.#timer.cancel();
  }

  #wait(delayMs: number, turns = 0): Timer {
    const before = this.#received();
    return this.#clock.after(delayMs, () => {
      const { leftMs } = this;
      const isBehind = delayMs > 0 || (this.#received() !== before && turns < MAX_TURNS_BEHIND);
      if (leftMs > 0) this.#timer = this.#wait(Math.ceil(leftMs));
      else if (isBehind) this.#timer = this.#wait(0, turns + 1);
      else this.#onSilence();
    });
  }
}
