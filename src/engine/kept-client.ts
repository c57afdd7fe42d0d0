import type { Address } from '../model/address.ts';
import type { KeptAddresses } from '../model/client-address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import { isKeptTowards, type KnownClients } from '../services/known-clients.ts';
import { Memory } from '../sys/memory.ts';
import { getsockname, originalDestination, SOCKET_ADDRESS_BYTES } from '../sys/socket.ts';
import { decodeAddress, decodePort, familyOfText, socketAddressWords } from '../sys/socket-address.ts';
import type { KeptClient } from './kept-dials.ts';

const socketAddress = new Memory(SOCKET_ADDRESS_BYTES);

/**
 * The client of an accepted connection if endpoints see its address, else `undefined`. `'unknown'`: it has gone, so
 * nobody can say. What it has sent must not reach an endpoint from this node's address, which may be let in where the
 * client's is not. `kept`: of the listener. Without `clients` it is not known yet who is one.
 */
export function keptTcpClient(
  clients: KnownClients | undefined,
  kept: KeptAddresses | undefined,
  client: Endpoint,
  fd: number,
): KeptClient | 'unknown' | undefined {
  if (kept === undefined || clients === undefined) return undefined;
  const { address } = client;
  const keptFor = clients.keptFor(kept, address);
  if (keptFor === 'none') return undefined;
  if (keptFor !== 'all') {
    if (originalDestination(fd, familyOfText(address), socketAddress) < 0) return 'unknown';
    if (!isKeptTowards(decodeAddress(socketAddress.bytes) as Address, keptFor, kept)) return undefined;
  }
  return keptClient(client);
}

/** Of a client whose address endpoints see. */
export function keptClient({ address, port }: Endpoint): KeptClient {
  return { address, name: socketAddressWords(address, port), needsNewPort: false };
}

/** The same for a client whose datagram arrived at an address and port of this node. */
export function keptUdpClient(
  clients: KnownClients | undefined,
  kept: KeptAddresses | undefined,
  client: KeptClient,
  destination: () => Address | undefined,
): KeptClient | 'unknown' | undefined {
  if (kept === undefined || clients === undefined) return undefined;
  const keptFor = clients.keptFor(kept, client.address);
  if (keptFor === 'none' || keptFor === 'all') return keptFor === 'all' ? client : undefined;
  const address = destination();
  if (address === undefined) return 'unknown';
  return isKeptTowards(address, keptFor, kept) ? client : undefined;
}

/**
 * What the client of an accepted connection asked for, before NAT. Where connection tracking does not know it, the
 * address at which the client arrived. `undefined` when there is no such connection.
 */
export function askedFor({ address }: Endpoint, fd: number): Endpoint | undefined {
  const isKnown = originalDestination(fd, familyOfText(address), socketAddress) === 0;
  if (!isKnown && getsockname(fd, socketAddress) < 0) return undefined;
  return { address: decodeAddress(socketAddress.bytes) as Address, port: decodePort(socketAddress.bytes) };
}
