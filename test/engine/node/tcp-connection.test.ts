import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import { before, type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { reset } from '../../../src/engine/node/node-side.ts';
import { backends, endpointAt } from '../../compliance/data-plane/harness.ts';
import { BLACK_HOLE, buildNetwork } from '../../compliance/data-plane/network.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { RawListener } from '../../support/raw-tcp.ts';
import { connectTcp, TcpBackend } from '../../support/tcp.ts';
import { manualRig } from './rig.ts';

const SPEC = listenSpec({ name: 'test/tcp', protocol: 'TCP', address: '127.0.0.1', port: 0 });

before(buildNetwork);

test('the engine tries no further endpoint 30 s after it accepted the client, even if the client waits', async (t) => {
  const { plane, clock, events } = manualRig(t);
  const holes = Array.from({ length: 40 }, (_, index) => endpointAt(BLACK_HOLE, 100 + index));
  const client = await connectTcp(await plane.open(SPEC, backends(holes)));
  client.end();
  await waitFor('the first try', () => clock.pendingTimers === 1);
  while (clock.pendingTimers > 0 && events.length < 40) clock.advance(250);
  assert.ok(clock.now() >= 30_000 && clock.now() < 32_250, `${clock.now()} ms`);
  assert.equal(events.at(-1), 'refused: exhausted');
  await client.finished();
});

test('bytes that an endpoint sent before a reset arrive, also when the engine does not know of the connection yet', async (t) => {
  const { plane, clock } = manualRig(t);
  const listener = new RawListener(t);
  const client = await connectTcp(await plane.open(SPEC, backends([listener.endpoint])));
  // The engine has begun to connect in this turn of the loop, and learns how that went in the next.
  for (let turns = 0; clock.pendingTimers === 0; turns++) {
    assert.ok(turns < 100_000, 'the engine does not dial');
    await turn();
  }
  const endpoint = listener.accept();
  endpoint.send('banner');
  endpoint.reset();
  assert.equal(await client.finished(), 'ECONNRESET');
  assert.equal(client.text, 'banner');
});

test('they arrive also when the engine writes to the endpoint first', async (t) => {
  const { plane } = manualRig(t);
  const listener = new RawListener(t);
  const client = await connectTcp(await plane.open(SPEC, backends([listener.endpoint])));
  await waitFor('the connection', () => [...plane.stats()][0]?.counters.connects === 1);
  const endpoint = listener.accept();
  client.send('request');
  endpoint.send('banner');
  endpoint.reset();
  assert.equal(await client.finished(), 'ECONNRESET');
  assert.equal(client.text, 'banner');
  assert.equal([...plane.stats()][0]?.counters.sentBytes, 6);
});

const TIMEOUT_MS = 300_000;

test('no timer is left when both directions have ended', async (t) => {
  const { plane, clock } = manualRig(t, { tcpHalfOpenTimeoutMs: TIMEOUT_MS });
  const server = await TcpBackend.start(t);
  const client = await connectTcp(await plane.open(SPEC, backends([server.endpoint])));
  const backend = await waitFor('the backend to accept', () => server.peers[0]);
  await waitFor('dialling to be over', () => clock.pendingTimers === 0);
  client.end();
  await backend.finished();
  assert.equal(clock.pendingTimers, 1);
  backend.end();
  assert.equal(await client.finished(), 'end');
  await waitFor('the timer to be cancelled', () => clock.pendingTimers === 0);
});

test('a slow reader still gets all that was sent to it before the other side ended', async (t) => {
  const { plane, clock } = manualRig(t, { tcpHalfOpenTimeoutMs: TIMEOUT_MS });
  const bytes = Buffer.alloc(300_000, 'x');
  const server = await TcpBackend.start(t, (peer) => peer.end(bytes));
  const client = await connectTcp(await plane.open(SPEC, backends([server.endpoint])));
  client.socket.pause();
  await waitFor('the bytes to be copied', () => [...plane.stats()][0]?.counters.sentBytes === bytes.length);
  await waitFor('the end to be seen', () => clock.pendingTimers === 1);
  clock.advance(TIMEOUT_MS);
  await waitFor('the connection to be over', () => [...plane.stats()][0]?.counters.active === 0);
  client.socket.resume();
  assert.equal(await client.finished(), 'end');
  assert.equal(client.receivedBytes, bytes.length);
});

/** `act` ends the server's side of a connection. Afterwards its descriptor must be closed, and no error reported. */
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

const ENDINGS: readonly (readonly [title: string, act: (socket: Socket) => void, expected?: string])[] = [
  ['resets an open connection', reset, 'ECONNRESET'],
  [
    'resets a connection with bytes that the peer has not taken',
    (socket) => {
      for (let i = 0; i < 64; i++) socket.write(Buffer.alloc(1 << 20));
      reset(socket);
    },
    'ECONNRESET',
  ],
  ...['', 'last words'].flatMap((text) => {
    const at = `while a direction is being ended with "${text}"`;
    const now = (socket: Socket) => reset(socket.end(text));
    const later = (socket: Socket) => setImmediate(reset, socket.end(text));
    return [[`works ${at}`, now] as const, [`works one turn later ${at}`, later] as const];
  }),
  ['works when a direction has ended', (socket) => socket.end().once('finish', () => reset(socket))],
  [
    'does nothing the second time, or after the end',
    (socket) => {
      reset(socket);
      reset(socket);
      socket.once('close', () => reset(socket));
    },
  ],
];

for (const [title, act, expected] of ENDINGS) {
  test(`reset() ${title}, and leaks no descriptor`, async (t) => {
    const how = await endsBy(t, act);
    if (expected !== undefined) assert.equal(how, expected);
  });
}
