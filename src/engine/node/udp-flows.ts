import type { Socket } from 'node:dgram';
import type { AddressInfo } from 'node:net';
import type { Address } from '../../model/address.ts';
import type { TryLog } from '../../model/connection-log.ts';
import type { DialFailure } from '../../model/data-plane.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import { canSee } from '../../services/known-clients.ts';
import type { Key } from '../core/flow-table.ts';
import type { Target } from '../core/target.ts';
import { type FlowClient as CoreFlowClient, UdpFlows as CoreUdpFlows } from '../core/udp-flows.ts';
import type { Replay as CoreReplay } from '../core/udp-replay.ts';
import type { Waiter } from '../core/waiting-room.ts';
import { UNKNOWN_DESTINATION } from '../errors.ts';
import type { KeptClient } from '../kept-dials.ts';
import type { Port } from './port.ts';
import { UdpFlow } from './udp-flow.ts';

/** A client, and the listening socket that its datagrams arrive at, by which replies leave. */
export interface FlowClient extends CoreFlowClient {
  readonly local: Socket;
}

export type Replay = CoreReplay<FlowClient, UdpFlow>;

/** The flows of one Service port. */
export class UdpFlows extends CoreUdpFlows<FlowClient, UdpFlow> {
  readonly port: Port;

  constructor(port: Port) {
    super();
    this.port = port;
  }

  refuse({ local, endpoint }: FlowClient): void {
    const { clock, kernel } = this.port.setup;
    if (kernel === undefined || !this.port.thread.refusals.tryTake(this.port, clock.now())) return;
    kernel.refuseDatagram(endpoint, endpointOf(local.address()));
  }

  /** The flow of this client's next datagram, if there is one. */
  current(local: Key, client: Key): UdpFlow | undefined {
    const flow = this.table.get(local, client);
    if (!flow?.isForgotten) return flow;
    flow.cut('proxy-idle');
    return undefined;
  }

  /** Begins the client's flow with a datagram, unless it has one, or waits. `waiter`: it has waited before. */
  take(from: FlowClient, datagram: Buffer, waiter?: Waiter): void {
    const { localKey, clientKey } = from;
    let flow = this.current(localKey, clientKey);
    if (flow === undefined && this.waitingAt(localKey, clientKey) === undefined) flow = this.begin(from, waiter);
    if (flow === undefined) this.waitingAt(localKey, clientKey)?.keep(datagram, waiter === undefined);
    else flow.send(datagram);
  }

  protected bring(from: FlowClient, datagrams: readonly Uint8Array[], waiter: Waiter): void {
    for (const { buffer, byteOffset, length } of datagrams) {
      this.take(from, Buffer.from(buffer, byteOffset, length), waiter);
    }
  }

  protected reach(target: Target, replay: Replay, tries: TryLog | undefined): UdpFlow | DialFailure {
    const kept = this.#keptBy(target, replay.from);
    if (kept === 'unknown') return this.notReached(target, replay.from, 'other', UNKNOWN_DESTINATION);
    const flow = new UdpFlow({ flows: this, from: replay.from, target, kept, replay, tries });
    flow.start();
    return flow;
  }

  /** The client if this endpoint sees its address. */
  #keptBy({ endpoint }: Target, { local, endpoint: client }: FlowClient): KeptClient | 'unknown' | undefined {
    const { setup, keptAddresses } = this.port;
    if (keptAddresses === undefined || !canSee(endpoint.address, client.address)) return undefined;
    return setup.keeper?.udpClient(client, endpointOf(local.address()), keptAddresses);
  }
}

export function endpointOf({ address, port }: Pick<AddressInfo, 'address' | 'port'>): Endpoint {
  return { address: address as Address, port };
}
