import type { Socket } from 'node:net';
import { type Address, unmapped } from '../../model/address.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { Target } from '../core/target.ts';
import { TcpConnection as CoreTcpConnection } from '../core/tcp-connection.ts';
import type { TcpDial } from '../core/tcp-dial.ts';
import type { KeptClient } from '../kept-dials.ts';
import { NodeSide } from './node-side.ts';
import type { Port } from './port.ts';
import { TcpAttempt } from './tcp-attempt.ts';

/** A connection of this engine. */
export class TcpConnection extends CoreTcpConnection<Target, Port, NodeSide> {
  protected readonly clientSide: NodeSide;

  /** Next is {@link begin}. */
  constructor(port: Port, socket: Socket) {
    super(port, endpointOf(socket.remoteAddress, socket.remotePort));
    this.clientSide = new NodeSide(this, socket, 'client');
  }

  newAttempt(dial: TcpDial<Target>, target: Target, timeoutMs: number, quietMs: number): TcpAttempt {
    return new TcpAttempt(this, dial, target, timeoutMs, quietMs);
  }

  protected newSide({ socket, rest }: TcpAttempt): NodeSide {
    return new NodeSide(this, socket as Socket, 'endpoint', rest);
  }

  protected keptClient(client: Endpoint): KeptClient | 'unknown' | undefined {
    const { keptAddresses, setup } = this.port;
    return setup.keeper?.tcpClient(this.clientSide.socket, client, keptAddresses);
  }

  protected askedFor(client: Endpoint): Endpoint | undefined {
    const { socket } = this.clientSide;
    return this.port.setup.kernel?.askedFor(client, socket) ?? endpointOf(socket.localAddress, socket.localPort);
  }
}

function endpointOf(address: string | undefined, port: number | undefined): Endpoint | undefined {
  return address === undefined || port === undefined ? undefined : { address: unmapped(address) as Address, port };
}
