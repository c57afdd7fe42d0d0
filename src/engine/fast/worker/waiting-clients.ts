import { keysOf, type ReplyPath } from '../../../sys/datagram-inbox.ts';
import type { Resource } from '../../core/shares.ts';
import { FlowTable } from './flow-table.ts';
import type { Port } from './port.ts';

/** The objects around a datagram; without it, empty datagrams would cost nothing. */
const OVERHEAD_BYTES = 512;

export interface WaitingClient {
  readonly localKey: number | string;
  readonly clientKey: number | string;
  readonly hasRetired: false;
  readonly path: ReplyPath;
  /** In the order in which they came. */
  readonly datagrams: Uint8Array[];
}

/** Clients whose flow is on its way from another worker, and their datagrams, as many as this worker may keep. */
export class WaitingClients {
  readonly #port: Port;
  readonly #bytes: Resource;
  readonly #clients = new FlowTable<WaitingClient>();

  constructor(port: Port) {
    this.#port = port;
    this.#bytes = port.worker.shares.datagramBytes;
  }

  /** Whether the client waits since now. One datagram too many is lost. */
  add(path: ReplyPath, datagram: Uint8Array): boolean {
    if (!this.#bytes.tryTake(datagram.length + OVERHEAD_BYTES, this.#port.share)) {
      this.#port.count('limited');
      return false;
    }
    const { local: localKey, client: clientKey } = keysOf(path);
    const known = this.#clients.get(localKey, clientKey);
    if (known !== undefined) known.datagrams.push(datagram);
    else this.#clients.add({ localKey, clientKey, hasRetired: false, path, datagrams: [datagram] });
    return known === undefined;
  }

  /** Its datagrams. It waits no longer. */
  take(path: ReplyPath): readonly Uint8Array[] {
    const { local, client } = keysOf(path);
    const known = this.#clients.get(local, client);
    if (known === undefined) return [];
    this.#clients.delete(known);
    for (const { length } of known.datagrams) this.#bytes.give(length + OVERHEAD_BYTES, this.#port.share);
    return known.datagrams;
  }

  [Symbol.iterator](): Iterator<WaitingClient> {
    return this.#clients[Symbol.iterator]();
  }
}
