import { createServer } from 'node:net';
import type { Endpoint } from '../../../model/endpoint.ts';
import type { BindOutcome } from '../listen-addresses.ts';
import { listenersOn } from './processes.ts';

/** Listens for a moment, as the proxy would. */
export function tryToBind({ address, port }: Endpoint): Promise<BindOutcome> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.on('error', (error: NodeJS.ErrnoException) =>
      resolve(
        error.code === 'EADDRINUSE'
          ? { outcome: 'taken', by: listenersOn(new Set([`${port}/TCP` as const])).get(`${port}/TCP`) }
          : { outcome: 'failed', err: error.code ?? error.message },
      ),
    );
    server.listen({ host: address, port }, () => server.close(() => resolve({ outcome: 'free' })));
  });
}
