import type { NamedEndpoint } from '../model/endpoint.ts';
import type { AffinityMemory, Part } from './affinity-memory.ts';

interface Entry {
  readonly client: string;
  endpoint: NamedEndpoint;
  usedMs: number;
  older: Entry | undefined;
  newer: Entry | undefined;
}

export interface AffinityOptions {
  readonly maxClients: number;
  readonly memory: AffinityMemory;
  readonly namespace: string;
  /** Clients that would still have had their endpoint were forgotten, because there are too many. */
  readonly onForgotten?: (clients: number) => void;
}

/**
 * The last endpoint of each client, for `sessionAffinity: ClientIP`. Beyond `maxClients`, forgets the client that has
 * been silent the longest. A linked list keeps the order of use, because finding a Map's first key walks over the holes
 * of earlier deletions: a new client in a full table of 65,536 cost 13 µs.
 */
export class ClientAffinity implements Part {
  /** May change at any time; applies to existing entries, too. */
  timeoutMs: number;
  readonly #options: AffinityOptions;
  readonly #entries = new Map<string, Entry>();
  #oldest: Entry | undefined;
  #newest: Entry | undefined;

  constructor(timeoutMs: number, options: AffinityOptions) {
    this.timeoutMs = timeoutMs;
    this.#options = options;
  }

  get namespace(): string {
    return this.#options.namespace;
  }

  /** Includes expired clients that no look-up has dropped yet. */
  get size(): number {
    return this.#entries.size;
  }

  /** The client's endpoint, unless its last use was `timeoutMs` or more ago (upstream: `floor(age) >= ttl`). */
  get(client: string, nowMs: number): NamedEndpoint | undefined {
    while (this.#oldest !== undefined && this.#isExpired(this.#oldest, nowMs)) this.#remove(this.#oldest);
    const entry = this.#entries.get(client);
    return entry === undefined || this.#isExpired(entry, nowMs) ? undefined : entry.endpoint;
  }

  set(client: string, endpoint: NamedEndpoint, nowMs: number): void {
    const known = this.#entries.get(client);
    const entry = known ?? { client, endpoint, usedMs: nowMs, older: undefined, newer: undefined };
    if (known === undefined) this.#entries.set(client, entry);
    else this.#unlink(known);
    entry.endpoint = endpoint;
    // A retry passes the start of its connection; another may have started later.
    entry.usedMs = Math.max(entry.usedMs, nowMs);
    this.#append(entry);
    if (this.#entries.size > this.#options.maxClients) this.giveUp(1, nowMs);
    if (known === undefined) this.#options.memory.added(this, nowMs);
  }

  /** Does nothing when the client has another endpoint by now. */
  forget(client: string, endpoint: NamedEndpoint): void {
    const entry = this.#entries.get(client);
    if (entry?.endpoint === endpoint) this.#remove(entry);
  }

  giveUp(clients: number, nowMs: number): void {
    let alive = 0;
    for (let i = 0; i < clients && this.#oldest !== undefined; i++) {
      if (!this.#isExpired(this.#oldest, nowMs)) alive++;
      this.#remove(this.#oldest);
    }
    if (alive > 0) this.#options.onForgotten?.(alive);
  }

  /** Forgets all. */
  close(): void {
    const { size } = this;
    this.#entries.clear();
    this.#oldest = undefined;
    this.#newest = undefined;
    if (size > 0) this.#options.memory.removed(this, size);
  }

  /** The longest silent client first. */
  *[Symbol.iterator](): Iterator<{
    readonly client: string;
    readonly endpoint: NamedEndpoint;
    readonly usedMs: number;
  }> {
    for (let entry = this.#oldest; entry !== undefined; entry = entry.newer) yield entry;
  }

  #isExpired(entry: Entry, nowMs: number): boolean {
    return nowMs - entry.usedMs >= this.timeoutMs;
  }

  #remove(entry: Entry): void {
    this.#entries.delete(entry.client);
    this.#options.memory.removed(this, 1);
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
