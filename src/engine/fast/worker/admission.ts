import { lowestFreeDescriptor } from '../../../sys/descriptor.ts';
import { describeErrno } from '../../../sys/sys-error.ts';
import type { Resource, Share, Shares } from '../../core/shares.ts';
import { Deadline } from './deadlines.ts';
import type { EventLoop } from './event-loop.ts';

/** How soon to look again for descriptors that other threads have freed. */
const RETRY_MS = 50;

/** Counts and reports that clients have to wait. */
interface Reporter {
  count(counter: 'pauses'): void;
  listenerFailed(err: string): void;
}

/** A connection that has a client, but no descriptor to dial with. */
interface Waiting {
  onDescriptor(): void;
}

/** Sockets that are only kept for later. */
interface Parked {
  readonly size: number;
  /** Whether there were any. */
  closeAll(): boolean;
}

/** A listener with clients that nobody accepts now. */
interface Held {
  readonly port: { readonly share: Share; atShare(): void };
  goOn(): void;
}

/**
 * Accepts clients while there are descriptors, and those of a namespace while it has not more than its share
 * (docs/adr/0032). Others wait in the kernel's queues. Accepting and closing them would lose them, and calling accept
 * again at once would spin.
 */
export class Admission {
  readonly #deadline = new Deadline(this);
  readonly #loop: EventLoop;
  readonly #shares: Pick<Shares, 'descriptors' | 'flowDescriptors'>;
  readonly #parked: readonly Parked[];
  readonly #held = new Set<Held>();
  #waiting: Waiting[] = [];
  #isRetrying = false;
  /** The kernel has refused a descriptor: nobody gets one. */
  #isPaused = false;

  constructor(loop: EventLoop, shares: Pick<Shares, 'descriptors' | 'flowDescriptors'>, parked: readonly Parked[]) {
    this.#loop = loop;
    this.#shares = shares;
    this.#parked = parked;
  }

  /** Whether one more client of this namespace may come in. */
  admits(share: Share): boolean {
    if (this.#isPaused) return false;
    return this.#hasRoom(this.#shares.descriptors, share);
  }

  /** The same for a UDP flow. */
  admitsFlow(share: Share): boolean {
    return this.#hasRoom(this.#shares.flowDescriptors, share);
  }

  /** Gives up sockets that are only kept for later. Whether there were any. */
  makeRoom(): boolean {
    return this.#parked.filter((sockets) => sockets.closeAll()).length > 0;
  }

  /** The kernel gives no descriptor. */
  pause(reporter: Reporter, errno: number): void {
    if (!this.#isPaused) {
      reporter.count('pauses');
      reporter.listenerFailed(`out of file descriptors: ${describeErrno(errno)}; new clients wait until some are free`);
    }
    this.#isPaused = true;
    this.#retryLater();
  }

  /** The listener is not watched any more. It goes on once it may accept a client. */
  hold(listener: Held): void {
    if (!this.#isPaused) listener.port.atShare();
    this.#held.add(listener);
    this.#retryLater();
  }

  /** The listener is about to close. */
  forget(listener: Held): void {
    this.#held.delete(listener);
  }

  /** Calls back once there are descriptors. */
  await(connection: Waiting): void {
    this.#waiting.push(connection);
  }

  /** Some descriptors are closed in this turn. */
  freed(): void {
    if ((!this.#isPaused && this.#held.size === 0) || this.#isRetrying) return;
    this.#isRetrying = true;
    this.#loop.atEndOfTurn(this);
  }

  onDue(): void {
    this.run();
  }

  run(): void {
    this.#isRetrying = false;
    if (this.#isPaused) this.#resume();
    if (!this.#isPaused) {
      // Whoever cannot go on becomes the last.
      for (const listener of [...this.#held]) {
        if (!this.admits(listener.port.share) || !this.#held.delete(listener)) continue;
        listener.goOn();
      }
    }
    if (this.#isPaused || this.#held.size > 0) this.#retryLater();
    else this.#deadline.cancel();
  }

  #hasRoom(descriptors: Resource, share: Share): boolean {
    if (descriptors.mayTake(share)) return true;
    // They are of all namespaces. A namespace that is at its share nevertheless must not cost others theirs.
    const parked = this.#parked.reduce((sum, { size }) => sum + size, 0);
    return descriptors.mayTake(share, 1, parked) && this.makeRoom();
  }

  #resume(): void {
    // Sockets may have been parked meanwhile.
    this.makeRoom();
    if (lowestFreeDescriptor() < 0) return;
    this.#isPaused = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each.onDescriptor();
  }

  #retryLater(): void {
    if (!this.#deadline.isWaiting) this.#loop.chores.after(RETRY_MS).start(this.#deadline, this.#loop.nowMs);
  }
}
