import type { RemoteInfo, Socket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv6 } from 'node:net';
import { isWildcard } from '../../model/address.ts';
import { errnoOf, listenError, toListenError } from '../errors.ts';
import type { Port } from './port.ts';
import { udpSocket } from './udp-flow.ts';
import { endpointOf, UdpFlows } from './udp-flows.ts';

/** The kernel chooses a port that is free at one address; at another it may be taken. */
const PORT_TRIES = 16;

/**
 * The UDP sockets of one Service port. A reply must leave from the address to which the client sent, or the client's
 * kernel (and conntrack, where a rule redirected the datagram) drops it. `dgram` can neither read nor set that address
 * (no IP_PKTINFO), so a wildcard becomes one socket per address of the node, all on the same port.
 */
export class UdpListener {
  localPort: number;
  readonly port: Port;
  readonly #flows: UdpFlows;
  /** By address. */
  readonly #sockets = new Map<string, Socket>();

  constructor(port: Port) {
    this.port = port;
    this.#flows = new UdpFlows(port);
    this.localPort = port.spec.port;
  }

  /** `localAddresses`: the node's own, of both families; used for a wildcard. Rejects with a ListenError. */
  async listen(localAddresses: () => readonly string[]): Promise<void> {
    const { spec } = this.port;
    for (let tries = 1; ; tries++) {
      try {
        await this.#bindAll(isWildcard(spec.address) ? localAddresses() : [spec.address]);
        return;
      } catch (err) {
        this.close();
        this.localPort = spec.port;
        const mayTryAnother = spec.port === 0 && errnoOf(err) === 'EADDRINUSE' && tries < PORT_TRIES;
        if (!mayTryAnother) throw toListenError(spec, err);
      }
    }
  }

  /** Addresses come and go with interfaces: the first pod on a node brings its bridge up. */
  addressesChanged(localAddresses: readonly string[]): void {
    if (!isWildcard(this.port.spec.address)) return;
    const present = this.#ofOwnFamily(localAddresses);
    for (const [address, socket] of this.#sockets) if (!present.has(address)) this.#drop(address, socket);
    for (const address of present) {
      if (this.#sockets.has(address)) continue;
      // Retried with the next reading of the addresses.
      this.#bind(address, this.localPort).catch((err: unknown) => this.port.listenerFailed(String(err)));
    }
  }

  endpointsChanged(): void {
    this.#flows.updated();
  }

  /** Flows end; descriptors are closed within the call. */
  close(): void {
    for (const [address, socket] of this.#sockets) this.#drop(address, socket);
  }

  /** Skips an address of a wildcard that left the node since it was read. Rejects with Node's error. */
  async #bindAll(addresses: readonly string[]): Promise<void> {
    const { spec } = this.port;
    for (const address of this.#ofOwnFamily(addresses)) {
      try {
        this.localPort = await this.#bind(address, this.localPort);
      } catch (err) {
        if (!isWildcard(spec.address) || errnoOf(err) !== 'EADDRNOTAVAIL') throw err;
      }
    }
    if (this.#sockets.size === 0) {
      throw listenError(spec, 'address-unavailable', 'this node has no address of that family');
    }
  }

  /** Each once: two interfaces may have the same address. */
  #ofOwnFamily(addresses: readonly string[]): ReadonlySet<string> {
    const isV6 = this.port.spec.family === 'IPv6';
    return new Set(addresses.filter((address) => isIPv6(address) === isV6));
  }

  async #bind(address: string, port: number): Promise<number> {
    const socket = udpSocket(address);
    // Noted before it is bound, so that nothing binds it twice and close() finds it.
    this.#sockets.set(address, socket);
    this.port.thread.shares.descriptors.take(1);
    socket.on('message', (datagram, remote) => {
      this.#take(socket, address, remote, datagram);
    });
    try {
      const listening = once(socket, 'listening');
      socket.bind({ address, port, exclusive: true });
      await listening;
    } catch (err) {
      this.#drop(address, socket);
      throw err;
    }
    socket.on('error', (err) => this.port.listenerFailed(err.message));
    return socket.address().port;
  }

  #drop(address: string, socket: Socket): void {
    this.#sockets.delete(address);
    this.port.thread.shares.descriptors.give(1);
    for (const flow of this.#flows.table) if (flow.from.localKey === address) flow.cut('proxy-removed');
    for (const client of [...this.#flows.waiting]) {
      if (client.from.localKey === address) client.refuse('no-endpoints');
    }
    socket.close();
  }

  #take(local: Socket, localKey: string, remote: RemoteInfo, datagram: Buffer): void {
    const clientKey = `${remote.address} ${remote.port}`;
    const flow = this.#flows.current(localKey, clientKey);
    if (flow !== undefined) {
      flow.send(datagram);
      return;
    }
    const endpoint = endpointOf(remote);
    this.#flows.take({ address: endpoint.address, endpoint, localKey, clientKey, local }, datagram);
  }
}
