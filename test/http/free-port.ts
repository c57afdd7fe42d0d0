import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

let lastPort = 10_000 + randomInt(10_000);

/**
 * A TCP port that was free a moment ago on every address. It is below the ports that the kernel assigns, so that it
 * stays free when a test closes it.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const server = createServer().listen(++lastPort);
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return lastPort;
  }
}
