import type { Address } from '../../../model/address.ts';
import type { Endpoint } from '../../../model/endpoint.ts';
import { Memory } from '../../../sys/memory.ts';
import { getpeername, SOCKET_ADDRESS_BYTES } from '../../../sys/socket.ts';
import { decodeAddress, decodePort } from '../../../sys/socket-address.ts';

const peer = new Memory(SOCKET_ADDRESS_BYTES);

/**
 * Who is at the other end of a connected socket; `undefined` when it is connected no longer. Asked when somebody wants to
 * know, for connections are many and few are ever looked at.
 */
export function clientOf(fd: number): Endpoint | undefined {
  if (getpeername(fd, peer) < 0) return undefined;
  return { address: decodeAddress(peer.bytes) as Address, port: decodePort(peer.bytes) };
}
