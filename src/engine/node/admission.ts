import type { Clock, Timer } from '../../util/clock.ts';
import type { Share, Shares } from '../core/shares.ts';

/** How soon to look whether listeners may go on. */
const RETRY_MS = 50;

/** A listener with clients that nobody accepts now. */
interface Held {
  readonly share: Share;
  goOn(): void;
}

/** Listeners wait while their namespace has its share of the descriptors (docs/adr/0032). */
export class Admission {
  readonly #clock: Clock;
  readonly #descriptors: Shares['descriptors'];
  readonly #held = new Set<Held>();
  #timer: Timer | undefined;

  constructor(clock: Clock, { descriptors }: Shares) {
    this.#clock = clock;
    this.#descriptors = descriptors;
  }

  /** Whether one more client of this namespace may come in. */
  admits(share: Share): boolean {
    return this.#descriptors.mayTake(share);
  }

  /**
   * The same for a client that was accepted already, as one is after others have taken the room: only far beyond its
   * share a namespace loses clients. It may have as many listeners as it likes, so there must be an end.
   */
  admitsAccepted(share: Share): boolean {
    // As if twice as many were free.
    return this.#descriptors.mayTake(share, 1, this.#descriptors.left);
  }

  /** The listener does not accept any more. It goes on once its namespace may have one more client. */
  hold(listener: Held): void {
    this.#held.add(listener);
    this.#timer ??= this.#clock.after(RETRY_MS, () => this.#look());
  }

  /** The listener closes. */
  forget(listener: Held): void {
    this.#held.delete(listener);
    if (this.#held.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #look(): void {
    this.#timer = undefined;
    const held = [...this.#held];
    this.#held.clear();
    for (const listener of held) {
      if (this.admits(listener.share)) listener.goOn();
      else this.hold(listener);
    }
  }
}
