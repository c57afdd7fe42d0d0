import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { PatternReceiver, PatternSender } from '../../support/pattern.ts';
import { connectSocket, TcpBackend } from '../../support/tcp.ts';
import { type FastRig, fastRig, openPort } from './rig.ts';

/** Resolves when no more bytes fit on the way to the client, with the number of bytes that the engine has sent. */
async function isFull(rig: FastRig): Promise<number> {
  let before = -1;
  await waitFor('everything to be full', async () => {
    const { sentBytes } = rig.stats('a/b').counters;
    const stands = sentBytes > 1 << 20 && sentBytes === before;
    before = sentBytes;
    await sleep(50);
    return stands;
  });
  return before;
}

/** A client of a backend that sends more than fits. The client reads nothing until it resumes. */
async function slowReader(t: TestContext) {
  const rig = await fastRig(t);
  const backend = await TcpBackend.raw(t, (socket) => {
    new PatternSender(socket).send(64 << 20).catch(() => {});
  });
  const client = await connectSocket(await openPort(rig, 'a/b', [backend.endpoint]));
  const received = new PatternReceiver(client);
  client.pause();
  return { rig, client, received, before: await isFull(rig), reset: () => backend.sockets[0]?.resetAndDestroy() };
}

test('bytes that were sent before a reset arrive before it, also at a reader that was behind', async (t) => {
  const { rig, client, received, before, reset } = await slowReader(t);
  const errors: (string | undefined)[] = [];
  client.on('error', (err: NodeJS.ErrnoException) => errors.push(err.code));
  reset();
  await sleep(100);
  client.resume();
  await waitFor('the reset', () => errors.length > 0);
  assert.deepEqual(errors, ['ECONNRESET']);
  assert.ok(received.receivedBytes >= before, `${received.receivedBytes} of ${before}`);
  assert.equal(received.receivedBytes, rig.stats('a/b').counters.sentBytes);
  assert.ok(received.isIntact);
});

test('a reader that stays behind is reset in the end', async (t) => {
  const { rig, client, reset } = await slowReader(t);
  const began = performance.now();
  reset();
  await waitFor('the connection to be over', () => rig.stats('a/b').counters.active === 0);
  const elapsedMs = performance.now() - began;
  assert.ok(elapsedMs > 900, `${elapsedMs} ms`);
  client.destroy();
});
