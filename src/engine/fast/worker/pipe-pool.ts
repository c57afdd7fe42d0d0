import { pipe, resizePipe } from '../../../sys/descriptor.ts';
import type { EventLoop } from './event-loop.ts';

/** What one splice can move. 64 KiB, the kernel's default, gave two thirds of the throughput. */
const PIPE_BYTES = 1 << 20;

/** A smaller pipe moves less in a call than copying does. */
const MIN_PIPE_BYTES = 64 << 10;

/** Idle pipes kept for the next turn; a pipe costs two descriptors, and 6 µs to open and enlarge. */
const MAX_IDLE = 16;

export interface Pipe {
  readonly readEnd: number;
  readonly writeEnd: number;
  readonly capacity: number;
}

/**
 * Pipes for splicing. A stream has one only while bytes are inside, so a few serve all streams of a worker; more are
 * in use only while receivers are slower than senders. These may hold `max`. One more goes to streams that do not stall,
 * so that slow readers never keep the others from splicing. Whoever gets none copies instead.
 */
export class PipePool {
  readonly #loop: EventLoop;
  readonly #max: number;
  readonly #descriptorCeiling: number;
  readonly #idle: Pipe[] = [];
  readonly #fds = new Int32Array(2);
  #open = 0;

  constructor({ loop, max, descriptorCeiling }: { loop: EventLoop; max: number; descriptorCeiling: number }) {
    this.#loop = loop;
    this.#max = max;
    this.#descriptorCeiling = descriptorCeiling;
  }

  /** `undefined` when there is none to be had. */
  take(): Pipe | undefined {
    return this.#idle.pop() ?? this.#openPipe();
  }

  /** Only the last is left, or in use: it must not hold more than can be copied, and nothing once its stream stalls. */
  get areScarce(): boolean {
    return this.#open - this.#idle.length > this.#max;
  }

  /** One that was opened elsewhere, with bytes inside. */
  adopt({ readEnd, writeEnd }: { readonly readEnd: number; readonly writeEnd: number }): Pipe {
    this.#open++;
    this.#loop.own(readEnd);
    this.#loop.own(writeEnd);
    return { readEnd, writeEnd, capacity: resizePipe(writeEnd, PIPE_BYTES) };
  }

  /** Takes back an empty pipe. */
  give(pipe: Pipe): void {
    if (this.#idle.length < MAX_IDLE) this.#idle.push(pipe);
    else this.discard(pipe);
  }

  /** For a pipe with bytes inside that nobody wants any more. */
  discard({ readEnd, writeEnd }: Pipe): void {
    this.#open--;
    this.#loop.close(readEnd);
    this.#loop.close(writeEnd);
  }

  #openPipe(): Pipe | undefined {
    if (this.#open > this.#max || pipe(this.#fds) < 0) return undefined;
    const [readEnd, writeEnd] = this.#fds as unknown as [number, number];
    this.#loop.own(readEnd);
    this.#loop.own(writeEnd);
    this.#open++;
    const opened = { readEnd, writeEnd, capacity: resizePipe(writeEnd, PIPE_BYTES) };
    if (opened.capacity >= MIN_PIPE_BYTES && writeEnd < this.#descriptorCeiling) return opened;
    // The user's pipes have all the memory they may have, or descriptors run short.
    this.discard(opened);
    return undefined;
  }
}
