import type { Server, Socket } from 'node:net';
import type { Endpoint } from '../../model/endpoint.ts';
import { congestionOption } from '../../sys/congestion-control.ts';
import { close, duplicate } from '../../sys/descriptor.ts';
import { Memory } from '../../sys/memory.ts';
import { sendPortUnreachable } from '../../sys/port-unreachable.ts';
import { peerState, recv, setOption, unacknowledgedBytes } from '../../sys/socket.ts';
import { encodeSocketAddress } from '../../sys/socket-address.ts';
import { askedFor } from '../kept-client.ts';

const scratch = new Memory(64 << 10);

/** `_handle` is unofficial, but old. A closed socket gives -1, which no call accepts. */
export function descriptorOf(socket: Socket | Server): number {
  return (socket as unknown as { readonly _handle?: { readonly fd?: number } | null })._handle?.fd ?? -1;
}

/** What the kernel knows of a socket, and Node does not say. */
export const kernelSockets = {
  peerState: (socket: Socket) => peerState(descriptorOf(socket)),
  unacknowledgedBytes: (socket: Socket) => Math.max(0, unacknowledgedBytes(descriptorOf(socket))),
  /** What the client of an accepted connection asked for, before NAT. */
  askedFor: (client: Endpoint, socket: Socket) => askedFor(client, descriptorOf(socket)),
  /** Of the connections that it accepts from now on. */
  useCongestionControl(server: Server, name: string): void {
    setOption(descriptorOf(server), congestionOption(name));
  },
  /** Another descriptor of the listening socket; `undefined` if there is none. */
  duplicate(server: Server): number | undefined {
    const fd = duplicate(descriptorOf(server));
    return fd < 0 ? undefined : fd;
  },
  close: (fd: number) => void close(fd),
  /** See {@link sendPortUnreachable}. */
  refuseDatagram(client: Endpoint, local: Endpoint): void {
    const [from, to] = [client, local].map(({ address, port }) => encodeSocketAddress(address, port));
    sendPortUnreachable(from as Memory, to as Memory);
  },
  /** What has been received and not read; there may be some after the connection has broken, too. */
  readRest(socket: Socket): readonly Buffer[] {
    const chunks: Buffer[] = [];
    for (;;) {
      const received = recv(descriptorOf(socket), scratch, 0, scratch.length);
      if (received <= 0) return chunks;
      chunks.push(Buffer.from(scratch.bytes.subarray(0, received)));
    }
  },
};

export type KernelSockets = typeof kernelSockets;
