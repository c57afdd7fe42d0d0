import { lowestFreeDescriptor } from '../../../sys/descriptor.ts';
import { EPOLLIN } from '../../../sys/epoll.ts';
import { Deadline } from './deadlines.ts';
import type { EventLoop } from './event-loop.ts';
import type { ParkedSockets } from './parked-sockets.ts';

/** How soon to look again for descriptors that other threads have freed. */
const RETRY_MS = 50;

/** Counts and reports that descriptors have run out. */
interface Reporter {
  count(counter: 'pauses'): void;
  listenerFailed(err: string): void;
}

/** A connection that has a client, but no descriptor to dial with. */
interface Waiting {
  onDescriptor(): void;
}

/**
 * Accepts clients while there are descriptors. When they run out, clients wait in the kernel's queues until some are
 * free. Accepting and closing them would lose them, and calling accept again at once would spin.
 *
 * The kernel gives out the lowest free number, so a number at the ceiling means that all below are taken. The numbers
 * above are kept for the rest of the program.
 */
export class Admission extends Deadline {
  readonly #loop: EventLoop;
  readonly #descriptorCeiling: number;
  readonly #parked: ParkedSockets;
  /** Listeners with waiting clients. */
  readonly #held: { readonly fd: number }[] = [];
  #waiting: Waiting[] = [];
  #isRetrying = false;
  isPaused = false;

  constructor(loop: EventLoop, descriptorCeiling: number, parked: ParkedSockets) {
    super();
    this.#loop = loop;
    this.#descriptorCeiling = descriptorCeiling;
    this.#parked = parked;
  }

  /** A descriptor was opened: stop accepting if it was one of the last. */
  opened(fd: number, reporter: Reporter): void {
    if (fd >= this.#descriptorCeiling && !this.makeRoom()) this.pause(reporter);
  }

  /** Gives up sockets that are only kept for later. Whether there were any. */
  makeRoom(): boolean {
    return this.#parked.closeAll();
  }

  /** There is no descriptor left. */
  pause(reporter: Reporter): void {
    if (!this.isPaused) {
      reporter.count('pauses');
      reporter.listenerFailed(
        `out of file descriptors (all ${this.#descriptorCeiling} for connections are taken): new clients wait until some are free`,
      );
    }
    this.isPaused = true;
    this.#retryLater();
  }

  /** The listener has clients; it is watched again once there are descriptors. */
  hold(listener: { readonly fd: number }): void {
    this.#held.push(listener);
    this.#loop.rewatch(listener.fd, 0);
  }

  /** The listener is about to close. */
  forget(listener: { readonly fd: number }): void {
    const at = this.#held.indexOf(listener);
    if (at >= 0) this.#held.splice(at, 1);
  }

  /** Calls back once there are descriptors. */
  await(connection: Waiting): void {
    this.#waiting.push(connection);
  }

  /** Some descriptors are closed in this turn. */
  freed(): void {
    if (!this.isPaused || this.#isRetrying) return;
    this.#isRetrying = true;
    this.#loop.atEndOfTurn(this);
  }

  onDue(): void {
    this.run();
  }

  run(): void {
    this.#isRetrying = false;
    // Sockets may have been parked meanwhile.
    if (this.isPaused) this.makeRoom();
    const free = lowestFreeDescriptor();
    if (free < 0 || free >= this.#descriptorCeiling) {
      this.#retryLater();
      return;
    }
    this.cancelDeadline();
    this.isPaused = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each.onDescriptor();
    for (const listener of this.#held) this.#loop.rewatch(listener.fd, EPOLLIN);
    this.#held.length = 0;
  }

  #retryLater(): void {
    this.#loop.deadlines.after(RETRY_MS).start(this, this.#loop.nowMs);
  }
}
