import { type Address, familyOf } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import { Memory } from '../sys/memory.ts';
import { ADDRESS_FAMILY, getsockname, originalDestination, SOCKET_ADDRESS_BYTES } from '../sys/socket.ts';
import { decodeAddress, decodePort } from '../sys/socket-address.ts';

const name = new Memory(SOCKET_ADDRESS_BYTES);

/**
 * What the client of an accepted connection asked for, before NAT. Where connection tracking does not know it, the
 * address at which the client arrived. `undefined` when there is no such connection.
 */
export function askedFor({ address }: Endpoint, fd: number): Endpoint | undefined {
  const isKnown = originalDestination(fd, ADDRESS_FAMILY[familyOf(address)], name) === 0;
  return isKnown || getsockname(fd, name) === 0 ? decoded() : undefined;
}

function decoded(): Endpoint {
  return { address: decodeAddress(name.bytes) as Address, port: decodePort(name.bytes) };
}
