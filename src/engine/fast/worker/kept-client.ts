import type { Address } from '../../../model/address.ts';
import { isKeptTowards } from '../../../services/known-clients.ts';
import { Memory } from '../../../sys/memory.ts';
import { getpeername, originalDestination, SOCKET_ADDRESS_BYTES } from '../../../sys/socket.ts';
import { decodeAddress, familyOfText } from '../../../sys/socket-address.ts';
import type { KeptClient } from '../../kept-dials.ts';
import type { Port } from './port.ts';

const socketAddress = new Memory(SOCKET_ADDRESS_BYTES);
const socketAddressWords = socketAddress.words();

/**
 * The client of an accepted connection if endpoints see its address, else `undefined`. `'unknown'`: it has gone, so
 * nobody can say. What it has sent must not reach an endpoint from this node's address, which may be let in where the
 * client's is not.
 */
export function keptTcpClient(
  { worker, keptAddresses }: Port,
  fd: number,
  client: string,
): KeptClient | 'unknown' | undefined {
  const { clients } = worker;
  if (keptAddresses === undefined || clients === undefined) return undefined;
  const address = client as Address;
  const keptFor = clients.keptFor(keptAddresses, address);
  if (keptFor === 'none') return undefined;
  if (keptFor !== 'all') {
    if (originalDestination(fd, familyOfText(client), socketAddress) < 0) return 'unknown';
    const destination = decodeAddress(socketAddress.bytes) as Address;
    if (!isKeptTowards(destination, keptFor, keptAddresses)) return undefined;
  }
  if (getpeername(fd, socketAddress) < 0) return 'unknown';
  return { address, name: socketAddressWords.slice() };
}
