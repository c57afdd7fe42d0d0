import type { Clock, Timer } from '../../util/clock.ts';
import { type Deadline, Deadlines, type Loop, type Task } from '../core/deadlines.ts';

/**
 * Deadlines on one of Node's timers. After a standstill of this process, timers run before events that came in time are
 * handled. So a deadline expires one turn of Node's loop after its timer, unless it was cancelled or restarted then.
 */
export class NodeLoop implements Loop {
  readonly #clock: Clock;
  readonly #deadlines: Deadlines = new Deadlines(() => this.#stopIfEmpty());
  #timer: Timer | undefined;
  /** When the timer runs. */
  #timerMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get nowMs(): number {
    return this.#clock.now();
  }

  start(deadline: Deadline, delayMs: number): void {
    this.#deadlines.after(delayMs).start(deadline, this.nowMs);
    this.#arm();
  }

  startChore(deadline: Deadline, delayMs: number): void {
    this.start(deadline, delayMs);
  }

  atEndOfTurn(task: Task): void {
    this.#clock.after(0, () => task.run());
  }

  inNextTurn(task: Task): void {
    this.atEndOfTurn(task);
  }

  #arm(): void {
    const dueMs = this.#deadlines.firstDueMs();
    if (dueMs === Number.POSITIVE_INFINITY || (this.#timer !== undefined && this.#timerMs <= dueMs)) return;
    this.#timer?.cancel();
    this.#timerMs = dueMs;
    // Rounded up, because Node's timers round down.
    this.#timer = this.#clock.after(Math.max(0, Math.ceil(dueMs - this.nowMs)), () => this.#onTimer());
  }

  #onTimer(): void {
    const { nowMs } = this;
    this.#timer = this.#clock.after(0, () => {
      this.#timer = undefined;
      this.#deadlines.expire(nowMs);
      this.#arm();
    });
  }

  #stopIfEmpty(): void {
    if (this.#deadlines.firstDueMs() !== Number.POSITIVE_INFINITY) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
