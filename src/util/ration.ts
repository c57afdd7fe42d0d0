import type { Clock } from './clock.ts';
import { TokenBucket } from './token-bucket.ts';

interface RationOptions {
  readonly clock: Clock;
  /** At once, for each key. */
  readonly burst: number;
  /** After that, one in this time. */
  readonly intervalMs: number;
}

/** Beyond this many keys, forgets those that have used up nothing. */
const MAX_KEYS = 1_024;

/** What one user may cause of something that all users share, such as lines of the log; by key. */
export class Ration<Key> {
  readonly #options: RationOptions;
  readonly #buckets = new Map<Key, { readonly bucket: TokenBucket; isUsedUp: boolean; takenAt: number }>();

  constructor(options: RationOptions) {
    this.#options = options;
  }

  /** `first refusal`: others of this key were allowed before; it is time to say that more will not be seen. */
  take(key: Key): 'allowed' | 'first refusal' | 'refused' {
    const { clock, burst, intervalMs } = this.#options;
    const now = clock.now();
    const ratePerSecond = 1_000 / intervalMs;
    const known = this.#buckets.get(key);
    const use = known ?? { bucket: new TokenBucket({ clock, ratePerSecond, burst }), isUsedUp: false, takenAt: now };
    if (known === undefined) {
      if (this.#buckets.size >= MAX_KEYS) this.#forget(now);
      this.#buckets.set(key, use);
    }
    if (use.bucket.tryTake(now)) {
      use.isUsedUp = false;
      use.takenAt = now;
      return 'allowed';
    }
    if (use.isUsedUp) return 'refused';
    use.isUsedUp = true;
    return 'first refusal';
  }

  #forget(now: number): void {
    const { burst, intervalMs } = this.#options;
    for (const [key, { takenAt }] of this.#buckets) {
      if (now - takenAt >= burst * intervalMs) this.#buckets.delete(key);
    }
    // All are in use: the oldest one starts anew.
    for (const key of this.#buckets.keys()) {
      if (this.#buckets.size < MAX_KEYS) break;
      this.#buckets.delete(key);
    }
  }
}
