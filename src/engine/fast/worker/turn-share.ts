import type { EventLoop, Task } from './event-loop.ts';

/** For all streams together, those that have events and those that wait one such share each: a few milliseconds. */
const BYTES_PER_TURN = 4 << 20;

/** What a stream may move when it has the loop to itself, so that others wait for under a millisecond. */
const LARGEST_PORTION = 1 << 20;

/** What it may move in any case: a message is not held up by what others have moved. */
const SMALLEST_PORTION = 64 << 10;

/**
 * Shares each turn of the loop among the streams of a worker, so that a turn stays short however many of them could go on
 * for ever. A stream that has spent its portion waits behind those that did so before.
 */
export class TurnShare implements Task {
  readonly #loop: EventLoop;
  readonly #waiting: Task[] = [];
  #left = BYTES_PER_TURN;
  #turn = 0;
  #isServing = false;

  constructor(loop: EventLoop) {
    this.#loop = loop;
  }

  /**
   * Bytes that a stream may move now. The more were moved in this turn, the fewer, unless it has waited: smaller pieces
   * cost more, and those who wait in line need not share.
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

  /** It has spent its portion: runs in a later turn, the first of them that has room. */
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
