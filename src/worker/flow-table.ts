import type { UdpFlow } from './udp-flow.ts';

type Key = number | string;

/**
 * The flows of one Service port. A client that uses two addresses of the node has two flows, for each reply must leave
 * from the address that was used.
 */
export class FlowTable {
  readonly #byLocal = new Map<Key, Map<Key, UdpFlow>>();
  /** Most Service ports are reached at one address. */
  #lastLocal: Key | undefined;
  #last: Map<Key, UdpFlow> | undefined;
  size = 0;

  get(local: Key, client: Key): UdpFlow | undefined {
    return this.#clientsAt(local)?.get(client);
  }

  add(flow: UdpFlow): void {
    let clients = this.#clientsAt(flow.localKey);
    if (clients === undefined) {
      clients = new Map();
      this.#byLocal.set(flow.localKey, clients);
    }
    clients.set(flow.clientKey, flow);
    this.size++;
  }

  delete(flow: UdpFlow): void {
    if (this.#byLocal.get(flow.localKey)?.delete(flow.clientKey)) this.size--;
  }

  *[Symbol.iterator](): Iterator<UdpFlow> {
    for (const clients of this.#byLocal.values()) yield* clients.values();
  }

  #clientsAt(local: Key): Map<Key, UdpFlow> | undefined {
    if (local !== this.#lastLocal || this.#last === undefined) {
      this.#lastLocal = local;
      this.#last = this.#byLocal.get(local);
    }
    return this.#last;
  }
}
