import { type Counters, failuresOf } from '../../contracts/data-plane.ts';

/** Per second. */
export interface Rates {
  readonly connections: number;
  readonly receivedBytes: number;
  readonly sentBytes: number;
  readonly failures: number;
  readonly retries: number;
}

export const NO_RATES: Rates = { connections: 0, receivedBytes: 0, sentBytes: 0, failures: 0, retries: 0 };

interface Seen {
  readonly at: number;
  readonly totals: Rates;
}

/** Differences between the counters of one look and those of the look before. */
export class RateMeter {
  #before = new Map<string, Seen>();
  #now = new Map<string, Seen>();

  /**
   * The rates of what was counted at `atMs`: {@link NO_RATES} if it was not there at the look before, or has fewer
   * connections than then, for it is another one under the same key.
   */
  rates(key: string, counters: Readonly<Counters>, atMs: number): Rates {
    const totals = totalsOf(counters);
    this.#now.set(key, { at: atMs, totals });
    const before = this.#before.get(key);
    if (before === undefined || totals.connections < before.totals.connections) return NO_RATES;
    return between(before.totals, totals, 1_000 / Math.max(1, atMs - before.at));
  }

  /** The look is complete: what was not in it is forgotten. */
  done(): void {
    this.#before = this.#now;
    this.#now = new Map();
  }
}

function totalsOf(counters: Readonly<Counters>): Rates {
  const { connections, receivedBytes, sentBytes, retries } = counters;
  return { connections, receivedBytes, sentBytes, retries, failures: failuresOf(counters) };
}

function between(before: Rates, now: Rates, perSecond: number): Rates {
  // A counter of many threads may be read a little late.
  const rate = (name: keyof Rates) => Math.max(0, now[name] - before[name]) * perSecond;
  return {
    connections: rate('connections'),
    receivedBytes: rate('receivedBytes'),
    sentBytes: rate('sentBytes'),
    failures: rate('failures'),
    retries: rate('retries'),
  };
}
