/** What one Service port remembers. */
export interface Part {
  readonly namespace: string;
  readonly size: number;
  /** Forgets those that have been silent the longest. */
  giveUp(clients: number, nowMs: number): void;
}

/** What the Service ports of one namespace remember. */
interface Holder {
  readonly parts: Set<Part>;
  clients: number;
}

/** How many clients one thread remembers at least, and all threads of a node with few. About 170 bytes each. */
const MAX_CLIENTS = 262_144;

/** What a part gives up at a time: looking for the largest namespace once for each new client would cost too much. */
const PART_GIVEN_UP = 1 / 64;

/**
 * The clients that all Service ports of one thread remember for their affinity, whose number is bounded: whoever may
 * write Services can ask for as many as there are addresses. Beyond that, the namespace that has the most gives up a
 * part of each of its Service ports, and no other loses any.
 */
export class AffinityMemory {
  readonly #maxClients: number;
  readonly #holders = new Map<string, Holder>();
  #clients = 0;

  /** One Service port may have `maxClientsPerPort` of them, however many threads there are. */
  constructor(maxClientsPerPort: number, threads = 1) {
    this.#maxClients = Math.max(maxClientsPerPort, Math.ceil(MAX_CLIENTS / threads));
  }

  /** The part has one more. */
  added(part: Part, nowMs: number): void {
    const holder = this.#holders.get(part.namespace) ?? { parts: new Set(), clients: 0 };
    if (holder.clients === 0) this.#holders.set(part.namespace, holder);
    holder.parts.add(part);
    holder.clients++;
    this.#clients++;
    if (this.#clients > this.#maxClients) this.#makeRoom(holder, nowMs);
  }

  /** The part has so many fewer. */
  removed(part: Part, clients: number): void {
    const holder = this.#holders.get(part.namespace);
    if (holder === undefined) return;
    holder.clients -= clients;
    this.#clients -= clients;
    if (part.size === 0) holder.parts.delete(part);
    if (holder.clients === 0) this.#holders.delete(part.namespace);
  }

  #makeRoom(first: Holder, nowMs: number): void {
    let largest = first;
    for (const each of this.#holders.values()) if (each.clients > largest.clients) largest = each;
    for (const part of largest.parts) part.giveUp(Math.ceil(part.size * PART_GIVEN_UP), nowMs);
  }
}
