import { pipe, resizePipe } from '../../../sys/descriptor.ts';
import type { Resource } from '../../core/shares.ts';
import type { EventLoop } from './event-loop.ts';

/** What one splice can move. The kernel's default of 64 KiB gave two thirds of the throughput. */
const PIPE_BYTES = 1 << 20;

/** A smaller pipe moves less in a call than copying does. */
const MIN_PIPE_BYTES = 64 << 10;

/** Idle pipes kept for later; a pipe costs two descriptors, and 6 µs to open and enlarge. */
const MAX_IDLE = 16;

export interface Pipe {
  readonly readEnd: number;
  readonly writeEnd: number;
  readonly capacity: number;
}

interface PipePoolSetup {
  readonly loop: EventLoop;
  readonly max: number;
  readonly descriptors: Pick<Resource, 'take' | 'isScarce'>;
}

/**
 * Pipes for splicing. A stream has a pipe only while bytes are inside, so a few pipes serve all streams of a worker.
 * Streams with slow receivers may hold `max` pipes. One more pipe is for streams that do not stall, so that slow
 * receivers never stop the others from splicing. A stream that gets no pipe copies.
 */
export class PipePool {
  readonly #loop: EventLoop;
  readonly #max: number;
  readonly #descriptors: Pick<Resource, 'take' | 'isScarce'>;
  readonly #idle: Pipe[] = [];
  readonly #fds = new Int32Array(2);
  #open = 0;

  constructor({ loop, max, descriptors }: PipePoolSetup) {
    this.#loop = loop;
    this.#max = max;
    this.#descriptors = descriptors;
  }

  /** `undefined` when there is none. */
  take(): Pipe | undefined {
    return this.#idle.pop() ?? this.#openPipe();
  }

  /**
   * Only the last pipe is left or in use: its stream must put in no more than can be copied, and empty it at a stall.
   */
  get areScarce(): boolean {
    return this.#open - this.#idle.length > this.#max;
  }

  /** Takes over a pipe of another process, with bytes inside. */
  adopt({ readEnd, writeEnd }: { readonly readEnd: number; readonly writeEnd: number }): Pipe {
    this.#count(1);
    this.#loop.own(readEnd);
    this.#loop.own(writeEnd);
    return { readEnd, writeEnd, capacity: resizePipe(writeEnd, PIPE_BYTES) };
  }

  /** A pipe is another worker's from now on. */
  forget(): void {
    this.#count(-1);
  }

  /** Takes back an empty pipe. */
  give(pipe: Pipe): void {
    if (this.#idle.length < MAX_IDLE) this.#idle.push(pipe);
    else this.discard(pipe);
  }

  /** Closes a pipe; bytes inside are lost. */
  discard({ readEnd, writeEnd }: Pipe): void {
    this.#count(-1);
    this.#loop.close(readEnd);
    this.#loop.close(writeEnd);
  }

  #count(amount: number): void {
    this.#open += amount;
    this.#descriptors.take(2 * amount);
  }

  #openPipe(): Pipe | undefined {
    if (this.#open > this.#max || this.#descriptors.isScarce || pipe(this.#fds) < 0) return undefined;
    const [readEnd, writeEnd] = this.#fds as unknown as [number, number];
    this.#loop.own(readEnd);
    this.#loop.own(writeEnd);
    this.#count(1);
    const opened = { readEnd, writeEnd, capacity: resizePipe(writeEnd, PIPE_BYTES) };
    if (opened.capacity >= MIN_PIPE_BYTES) return opened;
    // This user's pipes have reached the kernel's memory limit.
    this.discard(opened);
    return undefined;
  }
}
