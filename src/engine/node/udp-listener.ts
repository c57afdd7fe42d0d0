import type { RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, isIPv6 } from 'node:net';
import { type Address, isWildcard } from '../../model/address.ts';
import { TryLog } from '../../model/connection-log.ts';
import type { Limit } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { canSee } from '../../services/known-clients.ts';
import type { Target } from '../core/target.ts';
import { errnoOf, listenError, toListenError, UNKNOWN_DESTINATION } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import type { Port } from './port.ts';
import { hasRoomToSend, type LocalSocket, UdpFlow, udpSocket } from './udp-flow.ts';
import { type Asked, type Asking, UdpReplay } from './udp-replay.ts';

/** The kernel chooses a port that is free at one address; at another it may be taken. */
const PORT_TRIES = 16;

interface Beginning {
  readonly tries: TryLog;
  readonly kept: KeptClient | undefined;
}

/**
 * The UDP sockets of one Service port. A reply must leave from the address to which the client sent, or the client's
 * kernel (and conntrack, where a rule redirected the datagram) drops it. `dgram` can neither read nor set that address
 * (no IP_PKTINFO), so a wildcard becomes one socket per address of the node, all on the same port.
 */
export class UdpListener implements Asking {
  localPort: number;
  readonly port: Port;
  readonly #sockets = new Map<string, LocalSocket>();

  constructor(port: Port) {
    this.port = port;
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
    for (const [address, local] of this.#sockets) if (!present.has(address)) this.#drop(address, local);
    for (const address of present) {
      if (this.#sockets.has(address)) continue;
      // Retried with the next reading of the addresses.
      this.#bind(address, this.localPort).catch((err: unknown) => this.port.listenerFailed(String(err)));
    }
  }

  endpointsChanged(): void {
    for (const { flows, retired } of this.#sockets.values()) {
      for (const flow of flows.values()) {
        if (!this.port.has(flow.target)) flow.leave();
        else if (flow.target.position < 0) flow.retire();
      }
      for (const flow of retired) if (!this.port.has(flow.target)) flow.leave();
    }
  }

  ask(replay: UdpReplay): UdpFlow | undefined {
    const { remote } = replay;
    const before = replay.takeTurn();
    const target = before === undefined ? undefined : replay.next();
    if (target === undefined) {
      const reason = before === 0 ? 'no-endpoints' : 'exhausted';
      this.port.clientRefused(remote.address, reason);
      this.port.refusedDatagram(endpointOf(remote), `refused-${reason}`);
      if (!replay.mayBeAnswered) this.refuse(replay);
      return undefined;
    }
    // Not before it is known that there will be a flow: the one that makes room may still be answered.
    if (before !== 0 && !this.#hasRoom(remote)) return undefined;
    if (before !== 0) {
      this.port.count('retries', target);
    }
    const tries = new TryLog();
    if (before !== 0) tries.retries = 1;
    const kept = this.#keptBy(target, replay);
    if (kept === 'unknown') {
      const reason = this.port.dialFailed(target, new Error(UNKNOWN_DESTINATION), 'other');
      tries.fail(target.name, reason);
      this.port.refusedDatagram(endpointOf(remote), 'refused-error', tries);
      return undefined;
    }
    return this.#beginTo(target, replay, { tries, kept });
  }

  refuse({ local, remote }: Omit<Asked, 'asking'>): void {
    const { clock, kernel } = this.port.setup;
    if (kernel === undefined || !this.port.thread.refusals.tryTake(this.port, clock.now())) return;
    kernel.refuseDatagram(endpointOf(remote), endpointOf(local.socket.address()));
  }

  /** Flows end; descriptors are closed within the call. */
  close(): void {
    for (const [address, local] of this.#sockets) this.#drop(address, local);
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
    const local: LocalSocket = { socket, flows: new Map(), retired: new Set() };
    // Noted before it is bound, so that nothing binds it twice and close() finds it.
    this.#sockets.set(address, local);
    this.port.thread.shares.descriptors.take(1);
    socket.on('message', (datagram, remote) => {
      this.#flowOf(local, remote)?.send(datagram);
    });
    try {
      const listening = once(socket, 'listening');
      socket.bind({ address, port, exclusive: true });
      await listening;
    } catch (err) {
      this.#drop(address, local);
      throw err;
    }
    socket.on('error', (err) => this.port.listenerFailed(err.message));
    return socket.address().port;
  }

  #drop(address: string, local: LocalSocket): void {
    this.#sockets.delete(address);
    this.port.thread.shares.descriptors.give(1);
    for (const flow of [...local.flows.values(), ...local.retired]) flow.cut('proxy-removed');
    local.socket.close();
  }

  /** `undefined` when the client gets no flow. */
  #flowOf(local: LocalSocket, remote: RemoteInfo): UdpFlow | undefined {
    const flow = local.flows.get(flowKey(remote));
    if (flow === undefined) return this.#begin(local, remote);
    if (!flow.isForgotten) return flow;
    flow.cut('proxy-idle');
    return this.#begin(local, remote);
  }

  /** `undefined` when the client gets no flow. */
  #begin(local: LocalSocket, remote: RemoteInfo): UdpFlow | undefined {
    if (!this.#hasRoom(remote)) return undefined;
    return new UdpReplay({ asking: this, local, remote }).begin();
  }

  #beginTo(target: Target, replay: UdpReplay, { tries, kept }: Beginning): UdpFlow {
    const { local, remote, hasRetired } = replay;
    const { socket, flows, retired } = local;
    const client = remote.address;
    const key = flowKey(remote);
    this.port.thread.shares.flows.take(1, this.port.share);
    const flow = new UdpFlow({
      port: this.port,
      client: endpointOf(remote),
      target,
      kept,
      asked: { asking: this, local, remote },
      replay,
      tries,
      reply: (datagram) => {
        // A reply that cannot be sent is dropped. Its error does not concern other flows.
        if (hasRoomToSend(socket)) socket.send(datagram, remote.port, client, () => {});
        else this.port.count('limited');
      },
      onRetire: () => {
        flows.delete(key);
        retired.add(flow);
      },
      onEnd: () => {
        if (!retired.delete(flow)) flows.delete(key);
        this.port.thread.shares.flows.give(1, this.port.share);
      },
    });
    if (hasRetired) retired.add(flow);
    else flows.set(key, flow);
    flow.start();
    return flow;
  }

  /** Ends a retired flow for a new one, if that is necessary. */
  #hasRoom(remote: RemoteInfo): boolean {
    let limit = this.#limit();
    if (limit !== undefined && this.#endOneRetired()) limit = this.#limit();
    if (limit === undefined) return true;
    // No old flow ends: a flood of forged clients must not end the flows of real ones.
    this.port.limited(remote.address, limit);
    this.port.refusedDatagram(endpointOf(remote), 'refused-limit');
    return false;
  }

  /** The client if this endpoint sees its address. */
  #keptBy({ endpoint }: Target, { local, remote }: UdpReplay): KeptClient | 'unknown' | undefined {
    const { setup, keptAddresses } = this.port;
    const client = endpointOf(remote);
    if (keptAddresses === undefined || !canSee(endpoint.address, client.address)) return undefined;
    return setup.keeper?.udpClient(client, endpointOf(local.socket.address()), keptAddresses);
  }

  /** The limit that keeps a new flow out, if any. */
  #limit(): Limit | undefined {
    const { share, thread } = this.port;
    const limit = thread.shares.flows.limitOf(share);
    if (limit !== undefined) return `flows-${limit}`;
    return thread.shares.flowDescriptors.mayTake(share) ? undefined : 'descriptors';
  }

  /** Makes room. The new flow may be of the same client. */
  #endOneRetired(): boolean {
    for (const { retired } of this.#sockets.values()) {
      for (const flow of retired) {
        flow.cut('proxy-replaced');
        return true;
      }
    }
    return false;
  }
}

function endpointOf({ address, port }: AddressInfo): Endpoint {
  return { address: address as Address, port };
}

function flowKey(remote: RemoteInfo): string {
  return `${remote.address} ${remote.port}`;
}
