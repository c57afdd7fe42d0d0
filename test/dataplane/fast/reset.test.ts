import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { PatternReceiver, PatternSender } from '../../support/pattern.ts';
import { connectSocket, TcpBackend } from '../../support/tcp.ts';
import { fastRig, openPort } from './rig.ts';

test('what was sent before a reset arrives before it, also at a reader that was behind', async (t) => {
  const rig = await fastRig(t);
  const backend = await TcpBackend.raw(t, (socket) => {
    new PatternSender(socket).send(64 << 20).catch(() => {});
  });
  const port = await openPort(rig, 'a/b', [backend.endpoint]);
  const client = await connectSocket(port);
  client.pause();
  const received = new PatternReceiver(client);
  client.pause();
  const errors: (string | undefined)[] = [];
  client.on('error', (err: NodeJS.ErrnoException) => errors.push(err.code));

  let before = -1;
  await waitFor('everything to be full', async () => {
    const { sentBytes } = rig.stats('a/b').counters;
    const isFull = sentBytes > 0 && sentBytes === before;
    before = sentBytes;
    await sleep(50);
    return isFull;
  });
  backend.sockets[0]?.resetAndDestroy();
  await sleep(100);
  client.resume();
  await waitFor('the reset', () => errors.length > 0);
  assert.deepEqual(errors, ['ECONNRESET']);
  assert.ok(received.receivedBytes >= before, `${received.receivedBytes} of ${before}`);
  assert.equal(received.receivedBytes, rig.stats('a/b').counters.sentBytes);
  assert.ok(received.isIntact);
});

test('a reader that stays behind is reset in the end', async (t) => {
  const rig = await fastRig(t);
  const backend = await TcpBackend.raw(t, (socket) => {
    new PatternSender(socket).send(64 << 20).catch(() => {});
  });
  const port = await openPort(rig, 'a/b', [backend.endpoint]);
  const client = await connectSocket(port);
  client.pause();
  await waitFor('it to begin', () => rig.stats('a/b').counters.sentBytes > 0);
  await sleep(300);
  backend.sockets[0]?.resetAndDestroy();
  const began = performance.now();
  await waitFor('the connection to be over', () => rig.stats('a/b').counters.active === 0);
  const elapsedMs = performance.now() - began;
  assert.ok(elapsedMs > 900 && elapsedMs < 3000, `${elapsedMs} ms`);
  client.destroy();
});
