import type { RemoteInfo, Socket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv6 } from 'node:net';
import { type Address, isWildcard } from '../../model/address.ts';
import type { ListenSpec, OpenConnection } from '../../model/data-plane.ts';
import { errnoOf, listenError, toListenError } from '../listen-error.ts';
import type { PortContext, PortListener } from './port-context.ts';
import { turnAway } from './turn-away.ts';
import { UdpFlow } from './udp-flow.ts';
import { hasRoomToSend, udpSocket } from './udp-socket.ts';

/** The kernel chooses a port that is free at one address; at another it may be taken. */
const PORT_TRIES = 16;

/** Flows of all Service ports together. */
export interface FlowBudget {
  active: number;
  readonly max: number;
}

/** The listening socket at one address, and the flows of the clients that reached it there. */
interface LocalSocket {
  readonly socket: Socket;
  readonly flows: Map<string, UdpFlow>;
  /** Those that pass on late answers, while what their client sends next begins another. */
  readonly retired: Set<UdpFlow>;
}

/** `localAddresses`: the node's own, of both families; read only for a wildcard. */
export async function listenUdp(
  spec: ListenSpec,
  port: PortContext,
  options: { readonly budget: FlowBudget; readonly localAddresses: () => readonly string[] },
): Promise<UdpListener> {
  for (let tries = 1; ; tries++) {
    const listener = new UdpListener(spec, port, options.budget);
    try {
      await listener.bind(isWildcard(spec.address) ? options.localAddresses() : [spec.address]);
      return listener;
    } catch (err) {
      await listener.close();
      const mayTryAnother = spec.port === 0 && errnoOf(err) === 'EADDRINUSE' && tries < PORT_TRIES;
      if (!mayTryAnother) throw toListenError(spec, err);
    }
  }
}

/**
 * One Service port's UDP side. A reply must leave from the address that the client's datagram came to, or the client's
 * kernel (and conntrack, where a rule redirected it) does not know it. `dgram` tells neither that address nor lets a
 * reply choose one (no IP_PKTINFO), so a wildcard becomes one socket per address of the node, all on the same port.
 */
export class UdpListener implements PortListener {
  readonly #spec: ListenSpec;
  readonly #port: PortContext;
  readonly #budget: FlowBudget;
  readonly #sockets = new Map<string, LocalSocket>();
  #localPort: number;
  #flows = 0;

  constructor(spec: ListenSpec, port: PortContext, budget: FlowBudget) {
    this.#spec = spec;
    this.#port = port;
    this.#budget = budget;
    this.#localPort = spec.port;
  }

  get localPort(): number {
    return this.#localPort;
  }

  /** An address of a wildcard that left the node since it was read is passed over. Rejects with Node's error. */
  async bind(localAddresses: readonly string[]): Promise<void> {
    for (const address of this.#ofOwnFamily(localAddresses)) {
      try {
        this.#localPort = await this.#bindOne(address, this.#localPort);
      } catch (err) {
        if (!isWildcard(this.#spec.address) || errnoOf(err) !== 'EADDRNOTAVAIL') throw err;
      }
    }
    if (this.#sockets.size === 0) {
      throw listenError(this.#spec, 'address-unavailable', 'this node has no address of that family');
    }
  }

  /** Addresses come and go with interfaces (the first pod on a node brings its bridge up). Only for a wildcard. */
  follow(localAddresses: readonly string[]): void {
    const present = this.#ofOwnFamily(localAddresses);
    for (const [address, local] of this.#sockets) if (!present.has(address)) this.#drop(address, local);
    for (const address of present) {
      if (this.#sockets.has(address)) continue;
      // Tried again with the next reading of the addresses.
      this.#bindOne(address, this.#localPort).catch((err: unknown) => this.#report(String(err)));
    }
  }

  endpointsChanged(): void {
    const { picker, endpoints } = this.#port;
    for (const { flows, retired } of this.#sockets.values()) {
      for (const [key, flow] of flows) {
        if (picker.has(flow.endpoint)) continue;
        flows.delete(key);
        retired.add(flow);
      }
      for (const flow of retired) if (!endpoints.has(flow.endpoint)) flow.end();
    }
  }

  /** What begins at a socket after it was reached is left out; a flow that retires meanwhile comes once. */
  *flows(): Iterable<OpenConnection> {
    for (const local of this.#sockets.values()) {
      for (const flow of flowsOf(local)) if (!flow.hasEnded) yield flow.describe();
    }
  }

  async close(): Promise<void> {
    for (const [address, local] of this.#sockets) this.#drop(address, local);
  }

  /** Each once, for two interfaces may have the same address. */
  #ofOwnFamily(addresses: readonly string[]): ReadonlySet<string> {
    return new Set(addresses.filter((address) => isIPv6(address) === isIPv6(this.#spec.address)));
  }

  async #bindOne(address: string, port: number): Promise<number> {
    const socket = udpSocket(address);
    const local: LocalSocket = { socket, flows: new Map(), retired: new Set() };
    // Known before it is bound, so that nobody binds it twice and close() finds it.
    this.#sockets.set(address, local);
    socket.on('message', (datagram, remote) => this.#receive(local, datagram, remote));
    try {
      const listening = once(socket, 'listening');
      socket.bind({ address, port, exclusive: true });
      await listening;
    } catch (err) {
      this.#drop(address, local);
      throw err;
    }
    socket.on('error', (err) => this.#report(err.message));
    return socket.address().port;
  }

  /** Flows end; the descriptor is closed within the call. */
  #drop(address: string, local: LocalSocket): void {
    this.#sockets.delete(address);
    for (const flow of flowsOf(local)) flow.end();
    local.socket.close();
  }

  #receive(local: LocalSocket, datagram: Buffer, remote: RemoteInfo): void {
    const flow = local.flows.get(flowKey(remote)) ?? this.#begin(local, remote);
    flow?.send(datagram);
  }

  /** `undefined` when the client is turned away. */
  #begin({ socket, flows, retired }: LocalSocket, remote: RemoteInfo): UdpFlow | undefined {
    const { counters, observer, picker, clock, name } = this.#port;
    let limit = this.#limit();
    if (limit !== undefined && this.#endOneRetired()) limit = this.#limit();
    if (limit !== undefined) {
      // The new flow is refused, not an old one ended: a flood of invented clients must not drive out the real ones.
      counters.limited++;
      observer.limited({ name, client: remote.address, limit });
      return undefined;
    }
    const endpoint = picker.pick(remote.address, clock.now()).next();
    if (endpoint === undefined) {
      turnAway(this.#port, remote.address, 'no-endpoints');
      return undefined;
    }
    const key = flowKey(remote);
    const flow = new UdpFlow({
      port: this.#port,
      client: { address: remote.address as Address, port: remote.port },
      endpoint,
      reply: (datagram) => this.#reply(socket, datagram, remote),
      onEnd: () => {
        if (!retired.delete(flow)) flows.delete(key);
        this.#flows--;
        this.#budget.active--;
        counters.active--;
      },
    });
    flows.set(key, flow);
    this.#flows++;
    this.#budget.active++;
    counters.active++;
    counters.connections++;
    flow.start();
    return flow;
  }

  /** The bound that keeps a new flow out, if any. */
  #limit(): 'flows-per-service' | 'flows-total' | undefined {
    if (this.#flows >= this.#port.options.udpMaxFlowsPerService) return 'flows-per-service';
    return this.#budget.active >= this.#budget.max ? 'flows-total' : undefined;
  }

  /** Its client may be the very one that is to begin another. */
  #endOneRetired(): boolean {
    for (const { retired } of this.#sockets.values()) {
      for (const flow of retired) {
        flow.end();
        return true;
      }
    }
    return false;
  }

  #reply(socket: Socket, datagram: Buffer, remote: RemoteInfo): void {
    // A reply that cannot be sent is lost, as datagrams are; its error concerns nobody else.
    if (hasRoomToSend(socket)) socket.send(datagram, remote.port, remote.address, () => {});
    else this.#port.counters.limited++;
  }

  #report(err: string): void {
    this.#port.observer.listenerFailed({ name: this.#port.name, err });
  }
}

function flowsOf({ flows, retired }: LocalSocket): readonly UdpFlow[] {
  return [...flows.values(), ...retired];
}

function flowKey(remote: RemoteInfo): string {
  return `${remote.address} ${remote.port}`;
}
