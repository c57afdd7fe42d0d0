import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { Memory } from '../../../../src/sys/memory.ts';
import { recv, SO_SNDBUFFORCE, SOL_SOCKET, setOption } from '../../../../src/sys/socket.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { systemClock } from '../../../../src/util/system-clock.ts';
import { endpointAt } from '../../../compliance/data-plane/harness.ts';
import { descriptorOf, MSG_OOB, RawListener, sendTo } from '../../../support/raw-tcp.ts';
import { connectTcp, type TcpPeer } from '../../../support/tcp.ts';
import { engineRig } from './engine-rig.ts';

const PIECE = Buffer.alloc(256 << 10);

type EngineRig = ReturnType<typeof engineRig>;

async function connectClient(t: TestContext, port: number): Promise<TcpPeer> {
  const client = await connectTcp(port);
  t.after(() => client.socket.destroy());
  return client;
}

async function turnUntilOver({ engine }: EngineRig, client: TcpPeer): Promise<void> {
  for (const until = performance.now() + 60_000; !client.isOver; await turn()) {
    assert.ok(performance.now() < until, 'the client still waits for its end after 60 s');
    engine.turn(1);
  }
}

test('bytes that an endpoint sent before a reset arrive, also when the worker writes to it first', async (t) => {
  const rig = engineRig(t);
  const listener = new RawListener(t);
  const { localPort } = rig.listen({ endpoints: [listener.endpoint] });
  const client = await connectClient(t, localPort);
  rig.engine.turn(1000);
  const endpoint = listener.accept();
  // In this order, so that the worker sees the request before the reset.
  client.send('request');
  endpoint.send('banner');
  endpoint.reset();
  await turnUntilOver(rig, client);
  assert.equal(client.text, 'banner');
  assert.equal(client.error, 'ECONNRESET');
});

test('they arrive also when the worker learns of the connection and its reset at the same time', async (t) => {
  const rig = engineRig(t);
  // With its queue full the handshake is still under way at the end of the turn. The kernel tries again after a second.
  const listener = new RawListener(t, { backlog: 0 });
  const filler = await connectClient(t, listener.endpoint.port);
  const { localPort } = rig.listen({ endpoints: [listener.endpoint] });
  const client = await connectClient(t, localPort);
  rig.engine.turn(1000);
  listener.accept();
  const endpoint = await listener.accepted();
  endpoint.send('banner');
  endpoint.reset();
  await turnUntilOver(rig, client);
  assert.equal(client.text, 'banner');
  assert.equal(client.error, 'ECONNRESET');
  filler.reset();
});

test('an urgent byte stays in its place, also as the first that a client sends', async (t) => {
  const rig = engineRig(t);
  const listener = new RawListener(t);
  const { localPort } = rig.listen({ endpoints: [listener.endpoint] });
  const client = await connectClient(t, localPort);
  sendTo(descriptorOf(client.socket), '!', MSG_OOB);
  sendTo(descriptorOf(client.socket), 'rest');
  rig.engine.turn(1000);
  const endpoint = listener.accept();
  const received = new Memory(16);
  let bytes = 0;
  for (const until = performance.now() + 60_000; bytes < 4; await turn()) {
    bytes += Math.max(0, recv(endpoint.fd, received, bytes, 16 - bytes));
    assert.ok(performance.now() < until, `what arrived: ${received.bytes.toString('latin1', 0, bytes)}`);
    rig.engine.turn(1);
  }
  assert.equal(received.bytes.toString('latin1', 0, bytes), '!rest');
});

test('the worker tries no further endpoint 30 s after it accepted the client, even if the client waits', async (t) => {
  let nowMs = 0;
  const clock = { ...systemClock, now: () => nowMs };
  const { engine, reports, listen } = engineRig(t, {}, { clock });
  const listener = new RawListener(t, { backlog: 0, bind: '0.0.0.0' });
  const filler = await connectClient(t, listener.endpoint.port);
  const { port } = listener.endpoint;
  const endpoints = Array.from({ length: 40 }, (_, index) => endpointAt(`127.0.0.${1 + index}`, port));
  const { localPort } = listen({ endpoints });
  const client = await connectClient(t, localPort);
  client.end();
  const isOver = () => reports.some(({ kind }) => kind === 'clientRefused');
  for (; !isOver() && nowMs < 100_000; nowMs += 250) engine.turn(0);
  assert.ok(nowMs >= 30_000 && nowMs < 32_500, `${nowMs} ms`);
  assert.equal(await client.finished(), 'ECONNRESET');
  filler.reset();
});

test('a turn stays short when many streams have a lot to move', async (t) => {
  const STREAMS = 32;
  const rig = engineRig(t);
  const listener = new RawListener(t);
  const { localPort, counters } = rig.listen({ endpoints: [listener.endpoint] });
  await Promise.all(Array.from({ length: STREAMS }, () => connectClient(t, localPort)));
  while (counters.read().connections < STREAMS) rig.engine.turn(1000);
  for (let left = STREAMS; left > 0; left--) {
    const endpoint = listener.accept();
    must('setsockopt', setOption(endpoint.fd, { level: SOL_SOCKET, name: SO_SNDBUFFORCE, value: 4 << 20 }));
    while (endpoint.trySend(PIECE) > 0);
  }
  // All of them have events in the first turn, and wait for their portions from then on.
  let most = 0;
  for (let turns = 0; turns < 10; turns++) {
    const before = counters.read().sentBytes;
    rig.engine.turn(0);
    most = Math.max(most, counters.read().sentBytes - before);
  }
  assert.ok(most > 1 << 20, `${most} bytes: the test must offer more`);
  assert.ok(most <= 12 << 20, `${most} bytes in one turn`);
});
