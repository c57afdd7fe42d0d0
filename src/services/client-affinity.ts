import type { Endpoint } from '../model/endpoint.ts';

interface Entry {
  readonly client: string;
  endpoint: Endpoint;
  usedMs: number;
  older: Entry | undefined;
  newer: Entry | undefined;
}

/**
 * The last endpoint of each client, for `sessionAffinity: ClientIP`. Beyond `maxClients`, forgets the client that has
 * been silent the longest. A linked list keeps the order of use, because finding a Map's first key walks over the holes
 * of earlier deletions: a new client in a full table of 65,536 cost 13 µs.
 */
export class ClientAffinity {
  /** May change at any time; applies to existing entries, too. */
  timeoutMs: number;
  readonly #maxClients: number;
  readonly #entries = new Map<string, Entry>();
  #oldest: Entry | undefined;
  #newest: Entry | undefined;

  constructor(timeoutMs: number, maxClients: number) {
    this.timeoutMs = timeoutMs;
    this.#maxClients = maxClients;
  }

  /** Includes expired clients that no look-up has dropped yet. */
  get size(): number {
    return this.#entries.size;
  }

  /** The client's endpoint, unless its last use was `timeoutMs` or more ago (upstream: `floor(age) >= ttl`). */
  get(client: string, nowMs: number): Endpoint | undefined {
    while (this.#oldest !== undefined && this.#isExpired(this.#oldest, nowMs)) this.#remove(this.#oldest);
    const entry = this.#entries.get(client);
    return entry === undefined || this.#isExpired(entry, nowMs) ? undefined : entry.endpoint;
  }

  set(client: string, endpoint: Endpoint, nowMs: number): void {
    const known = this.#entries.get(client);
    const entry = known ?? { client, endpoint, usedMs: nowMs, older: undefined, newer: undefined };
    if (known === undefined) this.#entries.set(client, entry);
    else this.#unlink(known);
    entry.endpoint = endpoint;
    // A retry passes the start of its connection; another may have started later.
    entry.usedMs = Math.max(entry.usedMs, nowMs);
    this.#append(entry);
    if (this.#entries.size > this.#maxClients && this.#oldest !== undefined) this.#remove(this.#oldest);
  }

  /** Does nothing when the client has another endpoint by now. */
  forget(client: string, endpoint: Endpoint): void {
    const entry = this.#entries.get(client);
    if (entry?.endpoint === endpoint) this.#remove(entry);
  }

  /** The longest silent client first. */
  *[Symbol.iterator](): Iterator<{ readonly client: string; readonly endpoint: Endpoint; readonly usedMs: number }> {
    for (let entry = this.#oldest; entry !== undefined; entry = entry.newer) yield entry;
  }

  #isExpired(entry: Entry, nowMs: number): boolean {
    return nowMs - entry.usedMs >= this.timeoutMs;
  }

  #remove(entry: Entry): void {
    this.#entries.delete(entry.client);
    this.#unlink(entry);
  }

  #unlink(entry: Entry): void {
    if (entry.older === undefined) this.#oldest = entry.newer;
    else entry.older.newer = entry.newer;
    if (entry.newer === undefined) this.#newest = entry.older;
    else entry.newer.older = entry.older;
  }

  #append(entry: Entry): void {
    entry.older = this.#newest;
    entry.newer = undefined;
    if (this.#newest === undefined) this.#oldest = entry;
    else this.#newest.newer = entry;
    this.#newest = entry;
  }
}
