import type { Socket } from 'node:net';
import { localPorts } from '../../kernel/local-ports.ts';
import type { ClientFacts, KeptAddresses } from '../../model/client-address.ts';
import type { Endpoint } from '../../model/endpoint.ts';
import type { ProxiedProtocol } from '../../model/service-port.ts';
import { KnownClients } from '../../services/known-clients.ts';
import { close } from '../../sys/descriptor.ts';
import { shutdownWrite } from '../../sys/socket.ts';
import { encodeSocketAddress } from '../../sys/socket-address.ts';
import { must } from '../../sys/sys-error.ts';
import { keptTcpClient, keptUdpClient } from '../kept-client.ts';
import { type KeptClient, type KeptDial, KeptDials, SEARCHING } from '../kept-dials.ts';
import { type PortSearch, STILL_SEARCHING } from '../port-walk.ts';
import { type EndpointSocketOptions, openUnbound } from './endpoint-socket.ts';
import { descriptorOf } from './kernel-sockets.ts';

/** Makes endpoints see clients by their own address (docs/adr/0023). */
export class Keeper {
  readonly #options: EndpointSocketOptions;
  readonly #dials: KeptDials;
  #clients: KnownClients | undefined;

  constructor(options: EndpointSocketOptions & { readonly mark: number }) {
    const { mark } = options;
    this.#options = options;
    this.#dials = new KeptDials({ mark, ports: localPorts(), random: Math.random, own: () => {} });
  }

  know(facts: ClientFacts): void {
    this.#clients = new KnownClients(facts);
  }

  /** See {@link KeptDials.longestSilenceMs}. */
  longestSilenceMs(nowMs: number): number {
    return this.#dials.longestSilenceMs(nowMs);
  }

  /** See {@link keptTcpClient}. */
  tcpClient(socket: Socket, client: Endpoint, kept: KeptAddresses | undefined): KeptClient | 'unknown' | undefined {
    return keptTcpClient(this.#clients, kept, client, descriptorOf(socket));
  }

  /** The same for a datagram from `client` to an address and port of this node. */
  udpClient(client: Endpoint, local: Endpoint, kept: KeptAddresses | undefined): KeptClient | 'unknown' | undefined {
    if (kept === undefined || this.#clients === undefined) return undefined;
    const name = encodeSocketAddress(client.address, client.port).words();
    const named = { address: client.address, name, needsNewPort: false };
    return keptUdpClient(this.#clients, kept, named, () =>
      this.#dials.destinationOf(encodeSocketAddress(local.address, local.port).words(), named),
    );
  }

  /**
   * The descriptor of a TCP socket that must be connected to the endpoint next. Throws {@link STILL_SEARCHING}, or an
   * Error that says why not.
   */
  openTcp(endpoint: Endpoint, client: KeptClient, search: PortSearch): number {
    return this.#open('TCP', endpoint, (fd) => this.#dials.connectTcp(fd, endpoint, client, 'connected-later', search));
  }

  /** The same of a UDP socket. */
  openUdp(endpoint: Endpoint, client: KeptClient): number {
    return this.#open('UDP', endpoint, (fd) => this.#dials.connectUdp(fd, endpoint, client, true));
  }

  #open(protocol: ProxiedProtocol, { address }: Endpoint, begin: (fd: number) => KeptDial): number {
    const fd = openUnbound(address, protocol, this.#options);
    const { status, problem } = begin(fd);
    if (status !== 0) close(fd);
    if (status === SEARCHING) throw STILL_SEARCHING;
    if (problem !== undefined) throw new Error(problem);
    must('connect', status);
    return fd;
  }

  /** See {@link KeptDials.hasLost}. */
  hasLost(socket: Socket, endpoint: Endpoint, client: KeptClient): boolean {
    return this.#dials.hasLost(descriptorOf(socket), endpoint, client);
  }

  /** Before a socket is closed that the endpoint has not answered. If it just has, it learns of the end. */
  hangUp(socket: Socket, endpoint: Endpoint): void {
    const fd = descriptorOf(socket);
    shutdownWrite(fd);
    this.#dials.forget('TCP', fd, endpoint);
  }

  /** Before the socket of a flow is closed. */
  endFlow(fd: number, endpoint: Endpoint): void {
    this.#dials.forget('UDP', fd, endpoint);
  }
}
