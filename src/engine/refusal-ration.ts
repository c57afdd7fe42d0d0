import type { Clock } from '../util/clock.ts';
import { TokenBucket } from '../util/token-bucket.ts';

/** As the kernel's `net.ipv4.icmp_msgs_per_sec` and `icmp_msgs_burst`, which do not hold for raw sockets. */
const OF_ALL = { burst: 50, ratePerSecond: 1000 };

/** So that a flood at one Service port leaves something for the others. */
const OF_PORT = { burst: 50, ratePerSecond: 100 };

/**
 * How many clients may be told that all endpoints have refused their datagram ("port unreachable"). Whoever forges the
 * address of a client must not make the node flood it. Of one worker thread, or of an engine without threads.
 */
export class RefusalRation {
  readonly #clock: Clock;
  readonly #all: TokenBucket;
  readonly #ofPort = new WeakMap<object, TokenBucket>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#all = new TokenBucket({ clock, ...OF_ALL });
  }

  tryTake(port: object, nowMs: number): boolean {
    let own = this.#ofPort.get(port);
    if (own === undefined) {
      own = new TokenBucket({ clock: this.#clock, ...OF_PORT });
      this.#ofPort.set(port, own);
    }
    return own.tryTake(nowMs) && this.#all.tryTake(nowMs);
  }
}
