import type { Clock, Timer } from '../../src/util/clock.ts';

interface Pending {
  readonly at: number;
  readonly callback: () => void;
}

/** A clock that stands still until a test moves it. Timers fire in the order of their due time, then of arming. */
export class ManualClock implements Clock {
  #now = 0;
  readonly #wallStart: number;
  readonly #pending = new Set<Pending>();

  constructor(wallStart = 1_700_000_000_000) {
    this.#wallStart = wallStart;
  }

  now(): number {
    return this.#now;
  }

  wallNow(): number {
    return this.#wallStart + this.#now;
  }

  after(delayMs: number, callback: () => void): Timer {
    const entry: Pending = { at: this.#now + Math.max(0, delayMs), callback };
    this.#pending.add(entry);
    return { cancel: () => this.#pending.delete(entry) };
  }

  /** Timers armed and not yet fired or cancelled. */
  get pendingTimers(): number {
    return this.#pending.size;
  }

  /** Moves time on, firing what falls due on the way; each callback sees the time it was due at. */
  advance(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      let next: Pending | undefined;
      for (const entry of this.#pending) {
        if (entry.at <= end && (next === undefined || entry.at < next.at)) next = entry;
      }
      if (next === undefined) break;
      this.#pending.delete(next);
      this.#now = next.at;
      next.callback();
    }
    this.#now = end;
  }
}
