import { Deadline, type Loop, type Task } from './deadlines.ts';
import type { Port } from './port.ts';
import type { Resource, Share, Shares } from './shares.ts';

/** How soon to look again for descriptors that other threads have freed. */
const RETRY_MS = 50;

/** Sockets that are only kept for later. */
interface Parked {
  readonly size: number;
  /** Whether there were any. */
  closeAll(): boolean;
}

/** A listener with clients that nobody accepts now. */
interface Held {
  readonly port: Pick<Port, 'share' | 'atShare'>;
  goOn(): void;
}

/**
 * Accepts clients while there are descriptors, and those of a namespace while it has not more than its share
 * (docs/adr/0032). Others wait in the kernel's queues. Accepting and closing them would lose them, and calling accept
 * again at once would spin.
 */
export class Admission {
  readonly #deadline = new Deadline(this);
  readonly #loop: Loop;
  readonly #shares: Pick<Shares, 'descriptors' | 'flowDescriptors'>;
  readonly #parked: readonly Parked[];
  readonly #isDescriptorFree: () => boolean;
  readonly #held = new Set<Held>();
  #waiting: Task[] = [];
  #isRetrying = false;
  /** The kernel has refused a descriptor: nobody gets one. */
  #isPaused = false;

  constructor(setup: {
    readonly loop: Loop;
    readonly shares: Pick<Shares, 'descriptors' | 'flowDescriptors'>;
    readonly parked?: readonly Parked[];
    /** Asks the kernel. Missing where the admission is never {@link pause}d. */
    readonly isDescriptorFree?: () => boolean;
  }) {
    const { loop, shares, parked = [], isDescriptorFree = () => true } = setup;
    this.#loop = loop;
    this.#shares = shares;
    this.#parked = parked;
    this.#isDescriptorFree = isDescriptorFree;
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

  /**
   * Whether a client may stay that had to be accepted although others have taken the room: only far beyond its share a
   * namespace loses clients. It may have as many listeners as it likes, so there must be an end.
   */
  admitsAccepted(share: Share): boolean {
    const { descriptors } = this.#shares;
    // As if twice as many were free.
    return descriptors.mayTake(share, 1, descriptors.left);
  }

  /**
   * Whether a client that waits may have its second descriptor. Its namespace may be at its share by those who wait
   * alone, and none of them could ever be served.
   */
  admitsWaiting(share: Share): boolean {
    const { descriptors } = this.#shares;
    // As if half as many again were free.
    return descriptors.mayTake(share, 1, descriptors.left / 2);
  }

  /** Gives up sockets that are only kept for later. Whether there were any. */
  makeRoom(): boolean {
    return this.#parked.filter((sockets) => sockets.closeAll()).length > 0;
  }

  /** The kernel gives no descriptor. */
  pause(port: Pick<Port, 'count' | 'listenerFailed'>, err: string): void {
    if (!this.#isPaused) {
      port.count('pauses');
      port.listenerFailed(`out of file descriptors: ${err}; new clients wait until some are free`);
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

  /** It has a client, but no descriptor to dial with: it runs once there are some. */
  await(attempt: Task): void {
    this.#waiting.push(attempt);
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
    if (!this.#isDescriptorFree()) return;
    this.#isPaused = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each.run();
  }

  #retryLater(): void {
    if (!this.#deadline.isWaiting) this.#loop.startChore(this.#deadline, RETRY_MS);
  }
}
