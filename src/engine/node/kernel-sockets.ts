import type { Socket } from 'node:net';
import { Memory } from '../../sys/memory.ts';
import { peerState, recv, unacknowledgedBytes } from '../../sys/socket.ts';
import type { KernelSockets } from './port.ts';

const scratch = new Memory(64 << 10);

/** Of a socket that is closed already, a descriptor that no call accepts. `_handle` is not official, and old. */
function descriptorOf(socket: Socket): number {
  return (socket as unknown as { readonly _handle?: { readonly fd?: number } | null })._handle?.fd ?? -1;
}

export const kernelSockets: KernelSockets = {
  peerState: (socket) => peerState(descriptorOf(socket)),
  unacknowledgedBytes: (socket) => Math.max(0, unacknowledgedBytes(descriptorOf(socket))),
  readRest(socket) {
    const chunks: Buffer[] = [];
    for (;;) {
      const received = recv(descriptorOf(socket), scratch, 0, scratch.length);
      if (received <= 0) return chunks;
      chunks.push(Buffer.from(scratch.bytes.subarray(0, received)));
    }
  },
};
