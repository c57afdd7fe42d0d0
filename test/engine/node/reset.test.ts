import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { reset } from '../../../src/engine/node/tcp-connection.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, TcpBackend } from '../../support/tcp.ts';

/** `act` ends the server's side of a connection; it must be gone for good, descriptor included, without an error. */
async function endsBy(t: TestContext, act: (socket: Socket) => void): Promise<string> {
  const errors: Error[] = [];
  const closed: string[] = [];
  const server = await TcpBackend.raw(t, (socket) => {
    socket.on('error', (err) => errors.push(err));
    socket.on('close', () => closed.push('close'));
    // Not before the client knows that it is connected.
    socket.once('data', () => act(socket));
  });
  const before = readdirSync('/proc/self/fd').length;
  const peer = await connectTcp(server.endpoint.port);
  peer.send('go');
  const how = await peer.finished();
  await waitFor('the socket to close', () => closed.length > 0);
  peer.socket.destroy();
  await waitFor('its descriptor to go', () => readdirSync('/proc/self/fd').length <= before);
  assert.deepEqual(errors, []);
  return how;
}

test('an open connection is reset', async (t) => {
  assert.equal(await endsBy(t, reset), 'ECONNRESET');
});

test('a connection with bytes that the peer has not taken is reset', async (t) => {
  const how = await endsBy(t, (socket) => {
    for (let i = 0; i < 64; i++) socket.write(Buffer.alloc(1 << 20));
    reset(socket);
  });
  assert.equal(how, 'ECONNRESET');
});

test('a reset while a direction is being ended neither fails nor leaks the descriptor', async (t) => {
  for (const text of ['', 'last words']) {
    await endsBy(t, (socket) => {
      socket.end(text);
      reset(socket);
    });
    await endsBy(t, (socket) => {
      socket.end(text);
      setImmediate(() => reset(socket));
    });
  }
});

test('a connection whose direction has ended is reset', async (t) => {
  await endsBy(t, (socket) => {
    socket.end();
    once(socket, 'finish').then(() => reset(socket));
  });
});

test('resetting twice, or after the end, does nothing', async (t) => {
  await endsBy(t, (socket) => {
    reset(socket);
    reset(socket);
    socket.once('close', () => reset(socket));
  });
});
