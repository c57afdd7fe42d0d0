import type { EventLoop, Task } from './event-loop.ts';

/** Streams with events share this much per turn, and waiting streams as much again: a few milliseconds. */
const BYTES_PER_TURN = 4 << 20;

/** For a stream that has the loop to itself. Others wait for it less than a millisecond. */
const LARGEST_PORTION = 1 << 20;

/** A small message goes through in any case, however much others have moved. */
const SMALLEST_PORTION = 64 << 10;

/**
 * Shares each turn of the loop among the streams of a worker, so that a turn stays short however many streams have more
 * bytes to move. A stream that has spent its portion queues behind those that wait already.
 */
export class TurnBudget implements Task {
  readonly #loop: EventLoop;
  readonly #waiting: Task[] = [];
  #left = BYTES_PER_TURN;
  #turn = 0;
  #isServing = false;

  constructor(loop: EventLoop) {
    this.#loop = loop;
  }

  /**
   * Bytes that a stream may move now: the fewer, the more were moved in this turn. A stream from the queue gets the
   * largest portion, because smaller pieces cost more.
   */
  portion(): number {
    if (this.#turn !== this.#loop.turns) this.#begin();
    if (this.#isServing) return LARGEST_PORTION;
    return Math.max(SMALLEST_PORTION, Math.min(LARGEST_PORTION, this.#left >> 2));
  }

  /** After {@link portion}. */
  moved(bytes: number): void {
    this.#left -= bytes;
  }

  /** It has spent its portion: runs in the first later turn that has room. */
  await(stream: Task): void {
    if (this.#waiting.push(stream) === 1) this.#loop.inNextTurn(this);
  }

  run(): void {
    this.#begin();
    this.#isServing = true;
    for (let streams = this.#waiting.length; streams > 0 && this.#left > 0; streams--) this.#waiting.shift()?.run();
    this.#isServing = false;
    if (this.#waiting.length > 0) this.#loop.inNextTurn(this);
  }

  #begin(): void {
    this.#turn = this.#loop.turns;
    this.#left = BYTES_PER_TURN;
  }
}
