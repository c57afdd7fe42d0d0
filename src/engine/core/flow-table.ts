/** A number, or a text: numbers cost nothing to look up. */
export type Key = number | string;

/** A client's address and port, and the address of this node that it uses. */
export interface FlowKeys {
  readonly localKey: Key;
  readonly clientKey: Key;
}

interface Flow {
  readonly from: FlowKeys;
  readonly hasRetired: boolean;
}

/**
 * The flows of one Service port. A client that uses two addresses of the node has two flows, because each reply must
 * leave from the address that was used. Retired flows pass on late answers; their client's next datagram begins another
 * flow.
 */
export class FlowTable<Each extends Flow> {
  readonly #byLocal = new Map<Key, Map<Key, Each>>();
  readonly #retired = new Set<Each>();
  /** The address of the last look-up: most Service ports are reached at one. */
  #lastLocal: Key | undefined;
  #last: Map<Key, Each> | undefined;
  size = 0;

  get(local: Key, client: Key): Each | undefined {
    return this.#clientsAt(local)?.get(client);
  }

  add(flow: Each): void {
    if (flow.hasRetired) this.#retired.add(flow);
    else this.#addCurrent(flow);
    this.size++;
  }

  /** False when it has retired before. */
  retire(flow: Each & { hasRetired: boolean }): boolean {
    if (flow.hasRetired) return false;
    this.delete(flow);
    flow.hasRetired = true;
    this.add(flow);
    return true;
  }

  get firstRetired(): Each | undefined {
    // Asked for each new flow.
    if (this.#retired.size === 0) return undefined;
    const [first] = this.#retired;
    return first;
  }

  /** Whether it was there. */
  delete(flow: Each): boolean {
    const { localKey, clientKey } = flow.from;
    const wasThere = flow.hasRetired
      ? this.#retired.delete(flow)
      : (this.#byLocal.get(localKey)?.delete(clientKey) ?? false);
    if (wasThere) this.size--;
    return wasThere;
  }

  /** Retired flows come last, so a flow that retires meanwhile comes twice. */
  *[Symbol.iterator](): Iterator<Each> {
    for (const clients of this.#byLocal.values()) yield* clients.values();
    yield* this.#retired;
  }

  #addCurrent(flow: Each): void {
    let clients = this.#clientsAt(flow.from.localKey);
    if (clients === undefined) {
      clients = new Map();
      this.#byLocal.set(flow.from.localKey, clients);
    }
    clients.set(flow.from.clientKey, flow);
  }

  #clientsAt(local: Key): Map<Key, Each> | undefined {
    if (local !== this.#lastLocal || this.#last === undefined) {
      this.#lastLocal = local;
      this.#last = this.#byLocal.get(local);
    }
    return this.#last;
  }
}
