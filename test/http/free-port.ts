import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

let lastPort = 10_000 + randomInt(10_000);

/**
 * A TCP port that was free a moment ago on every address, and that nobody else is going to have: it is below those that
 * the kernel gives to whoever does not ask for one, so that a test can also close it and count on nobody there.
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
