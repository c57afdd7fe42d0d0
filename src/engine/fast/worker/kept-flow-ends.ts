import type { KeptDials, KeptSource } from '../../kept-dials.ts';
import type { EventLoop, Task } from './event-loop.ts';

/**
 * Ends flows whose endpoints saw the client: their sockets are closed at the end of a turn, after all their entries of
 * connection tracking have been deleted with one system call.
 */
export class KeptFlowEnds implements Task {
  readonly #loop: EventLoop;
  readonly #dials: () => KeptDials;
  readonly #fds: number[] = [];

  /** `dials`: made for the first flow. */
  constructor(loop: EventLoop, dials: () => KeptDials) {
    this.#loop = loop;
    this.#dials = dials;
  }

  add(fd: number, source: KeptSource): void {
    this.#dials().forgetLater(source);
    if (this.#fds.push(fd) === 1) this.#loop.atEndOfTurn(this);
  }

  run(): void {
    if (this.#fds.length === 0) return;
    this.#dials().forgetAll();
    for (const fd of this.#fds) this.#loop.close(fd);
    this.#fds.length = 0;
  }
}
