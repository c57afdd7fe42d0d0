import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { Random } from '../util/clock.ts';

/**
 * Strict turns over a shuffled list. The shuffle keeps the nodes of a cluster, which all see the same list, from
 * beginning with the same endpoint (upstream `pkg/proxy/userspace/roundrobin.go`, `shuffleEndpoints`).
 *
 * An endpoint is the same object for as long as it stays in the set, whatever the updates bring, and another object
 * after it has left and come back. So whoever remembers an endpoint compares by identity, and what he remembers of one
 * that left never applies to its return.
 */
export class RoundRobin {
  readonly #random: Random;
  #byName: ReadonlyMap<string, Endpoint> = new Map();
  #ring: readonly Endpoint[] = [];
  #members: ReadonlySet<Endpoint> = new Set();
  #turn = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  /** Says whether the set changed. The same set in another order, or with duplicates, is no change: turns go on. */
  update(endpoints: readonly Endpoint[]): boolean {
    const byName = new Map<string, Endpoint>();
    for (const endpoint of endpoints) {
      const name = endpointName(endpoint);
      byName.set(name, this.#byName.get(name) ?? byName.get(name) ?? endpoint);
    }
    const ring = [...byName.values()];
    if (ring.length === this.#members.size && ring.every((endpoint) => this.#members.has(endpoint))) return false;

    shuffle(ring, this.#random);
    this.#byName = byName;
    this.#ring = ring;
    this.#members = new Set(ring);
    this.#turn = 0;
    return true;
  }

  has(endpoint: Endpoint): boolean {
    return this.#members.has(endpoint);
  }

  /** The endpoints in the order of their turns, the next one first. */
  inTurn(): readonly Endpoint[] {
    return [...this.#ring.slice(this.#turn), ...this.#ring.slice(0, this.#turn)];
  }

  /** Goes on with the turns of another one, of the same set. */
  restore(inTurn: readonly Endpoint[]): void {
    this.#ring = inTurn.flatMap((endpoint) => this.#byName.get(endpointName(endpoint)) ?? []);
    this.#turn = 0;
  }

  /** Whose turn is next. It stays so. */
  peek(): Endpoint | undefined {
    return this.#ring[this.#turn];
  }

  /** The next endpoint in turn that is not in `except`; `undefined` when there is none. The turn moves past it. */
  next(except?: ReadonlySet<Endpoint>): Endpoint | undefined {
    const ring = this.#ring;
    for (let step = 0; step < ring.length; step++) {
      const endpoint = ring[this.#turn];
      this.#turn = (this.#turn + 1) % ring.length;
      if (endpoint !== undefined && !except?.has(endpoint)) return endpoint;
    }
    return undefined;
  }
}

/** Fisher–Yates, in place. */
function shuffle(list: Endpoint[], random: Random): void {
  for (let i = list.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    const [a, b] = [list[i], list[j]];
    if (a === undefined || b === undefined) continue;
    list[i] = b;
    list[j] = a;
  }
}
