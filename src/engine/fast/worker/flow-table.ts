import type { UdpFlow } from './udp-flow.ts';

type Key = number | string;

/**
 * The flows of one Service port. A client that uses two addresses of the node has two flows, for each reply must leave
 * from the address that was used. Beside them are those that have retired: they pass on late answers, while what their
 * client sends next begins another.
 */
export class FlowTable {
  readonly #byLocal = new Map<Key, Map<Key, UdpFlow>>();
  readonly #retired = new Set<UdpFlow>();
  /** Most Service ports are reached at one address. */
  #lastLocal: Key | undefined;
  #last: Map<Key, UdpFlow> | undefined;
  size = 0;

  get(local: Key, client: Key): UdpFlow | undefined {
    return this.#clientsAt(local)?.get(client);
  }

  add(flow: UdpFlow): void {
    if (flow.hasRetired) this.#retired.add(flow);
    else this.#addCurrent(flow);
    this.size++;
  }

  retire(flow: UdpFlow): void {
    if (flow.hasRetired) return;
    this.delete(flow);
    flow.hasRetired = true;
    this.add(flow);
  }

  /** The one that has retired first. */
  get firstRetired(): UdpFlow | undefined {
    const [first] = this.#retired;
    return first;
  }

  delete(flow: UdpFlow): void {
    const { localKey, clientKey, hasRetired } = flow;
    if (hasRetired ? this.#retired.delete(flow) : this.#byLocal.get(localKey)?.delete(clientKey)) this.size--;
  }

  /** Those that have retired come last, so that one which retires meanwhile comes twice. */
  *[Symbol.iterator](): Iterator<UdpFlow> {
    for (const clients of this.#byLocal.values()) yield* clients.values();
    yield* this.#retired;
  }

  #addCurrent(flow: UdpFlow): void {
    let clients = this.#clientsAt(flow.localKey);
    if (clients === undefined) {
      clients = new Map();
      this.#byLocal.set(flow.localKey, clients);
    }
    clients.set(flow.clientKey, flow);
  }

  #clientsAt(local: Key): Map<Key, UdpFlow> | undefined {
    if (local !== this.#lastLocal || this.#last === undefined) {
      this.#lastLocal = local;
      this.#last = this.#byLocal.get(local);
    }
    return this.#last;
  }
}
