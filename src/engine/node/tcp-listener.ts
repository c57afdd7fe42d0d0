import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import type { ListenSpec } from '../../model/data-plane.ts';
import { toListenError } from '../listen-error.ts';
import type { PortContext, PortListener } from './port-context.ts';
import { TCP_OPTIONS } from './tcp-options.ts';

/** How many clients may wait to be accepted; the kernel caps it at `net.core.somaxconn` (4096 by default). */
const BACKLOG = 4096;

/**
 * Accepting goes on whatever becomes of the connections. When the process has no descriptor left, libuv accepts and
 * closes what waits (`uv__emfile_trick`), so the listener neither spins nor dies.
 */
export async function listenTcp(
  spec: ListenSpec,
  port: PortContext,
  onConnection: (client: Socket) => void,
): Promise<PortListener> {
  const server = createServer(TCP_OPTIONS, onConnection);
  const listening = once(server, 'listening');
  server.listen({ host: spec.address, port: spec.port, backlog: BACKLOG, ipv6Only: true });
  try {
    await listening;
  } catch (err) {
    throw toListenError(spec, err);
  }
  // A server never closes by itself: telling is all there is to do.
  server.on('error', (err) => port.observer.listenerFailed({ name: port.name, err: err.message }));

  const address = server.address();
  return {
    localPort: address !== null && typeof address === 'object' ? address.port : spec.port,
    // Established connections stay with the endpoint they have.
    endpointsChanged: () => {},
    // The descriptor is closed within the call. What Node still waits for is the end of the connections.
    close: async () => {
      server.close();
    },
  };
}
