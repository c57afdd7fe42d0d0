import { createSocket, type Socket } from 'node:dgram';
import { isIPv6 } from 'node:net';

/** Room for bursts. The kernel caps it at `net.core.rmem_max` and `wmem_max`, and reserves nothing. */
const BUFFER_BYTES = 4 << 20;

/** What may wait inside the process when the kernel takes no more; beyond it datagrams are lost, as in the kernel. */
const MAX_QUEUED_BYTES = 1 << 20;

/**
 * An unbound socket of the address's family. Without SO_REUSEADDR: with it two Services could be given one port.
 *
 * Addresses are always numeric here, and the default look-up would put every datagram off by a turn through `dns`.
 */
export function udpSocket(address: string): Socket {
  const family = isIPv6(address) ? 6 : 4;
  return createSocket({
    type: `udp${family}`,
    ipv6Only: family === 6,
    recvBufferSize: BUFFER_BYTES,
    sendBufferSize: BUFFER_BYTES,
    lookup: (numeric, _options, callback) => callback(null, numeric, family),
  });
}

export function hasRoomToSend(socket: Socket): boolean {
  return socket.getSendQueueSize() < MAX_QUEUED_BYTES;
}
