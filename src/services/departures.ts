import type { Member } from './member.ts';
import type { PoolChange } from './pool.ts';

/** Names of endpoints that left at the same time. */
export type Departure = ReadonlySet<string>;

/** Tracks which endpoints of a listener have left, and whether they are still gone some time later. */
export class Departures {
  /** By name. */
  readonly #gone = new Map<string, Departure>();

  /** The endpoints that have left now, if any. Call {@link end} for them later. */
  update({ joined, left }: Pick<PoolChange<Member>, 'joined' | 'left'>): Departure | undefined {
    for (const { name } of joined) this.#gone.delete(name);
    return this.#note(left.map(({ name }) => name));
  }

  /** A connection has this endpoint, which is in neither list. Returns a departure unless one is under way. */
  connected(name: string): Departure | undefined {
    return this.#gone.has(name) ? undefined : this.#note([name]);
  }

  /** The endpoints of a departure that have not come back since. */
  end(departure: Departure): ReadonlySet<string> {
    const gone = new Set([...departure].filter((name) => this.#gone.get(name) === departure));
    for (const name of gone) this.#gone.delete(name);
    return gone;
  }

  #note(names: readonly string[]): Departure | undefined {
    if (names.length === 0) return undefined;
    const departure = new Set(names);
    for (const name of names) this.#gone.set(name, departure);
    return departure;
  }
}
