import type { Clock, Timer } from '../util/clock.ts';

interface CanaryOptions {
  readonly clock: Clock;
  readonly intervalMs: number;
  /** Whether the rules are intact. Rejects when it cannot tell: the next look may. */
  readonly look: () => Promise<boolean>;
  /** Must not throw. */
  readonly onLost: () => void;
}

/**
 * Looks periodically whether the rules are still there: a program that flushes tables notifies nobody. A look that
 * falls due during a change of rules follows at once.
 */
export class Canary {
  readonly #options: CanaryOptions;
  #timer: Timer | undefined;
  #looking: Promise<void> | undefined;
  #isChanging = false;
  #isDue = false;
  #isStopped = false;

  constructor(options: CanaryOptions) {
    this.#options = options;
  }

  /** Changes the rules, one change at a time. The first success starts the looks. */
  async during(change: () => Promise<void>): Promise<void> {
    await this.#looking;
    this.#isChanging = true;
    try {
      await change();
      if (this.#timer === undefined) this.#arm();
    } finally {
      this.#isChanging = false;
      if (this.#isDue) this.#look();
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await this.#looking;
  }

  resume(): void {
    this.#isStopped = false;
    if (this.#timer !== undefined) this.#arm();
  }

  #arm(): void {
    if (this.#isStopped) return;
    const { clock, intervalMs } = this.#options;
    this.#timer = clock.after(intervalMs, () => {
      if (this.#isChanging) this.#isDue = true;
      else this.#look();
    });
  }

  #look(): void {
    this.#isDue = false;
    if (this.#isStopped) return;
    const { look, onLost } = this.#options;
    this.#looking = look()
      .catch(() => true)
      .then((areThere) => {
        this.#looking = undefined;
        this.#arm();
        if (!areThere) onLost();
      });
  }
}
