import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Backends } from '../../../src/model/data-plane.ts';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import { listed } from '../../compliance/data-plane/inspecting.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { connectTcp, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { passOn } from './pass-on.ts';
import { type FastRig, fastRig } from './rig.ts';

const CLIENTS = 1_000;
const AT_ONCE = 100;
const WAIT_MS = 60_000;
const WAITED_MS = 1_000;

const TCP = listenSpec({ name: 'test/tcp', protocol: 'TCP', address: '127.0.0.1', port: 0 });
const UDP = listenSpec({ name: 'test/udp', protocol: 'UDP', address: '127.0.0.1', port: 0 });

function backends(endpoints: readonly NamedEndpoint[], forEndpointsMs = WAIT_MS): Backends {
  const waiting = { forEndpointsMs, whileFullMs: 0, max: 65_536 };
  return { endpoints, affinity: { type: 'None' }, waiting };
}

/** Resolves when all of them wait. Each has asked with its number. */
async function waitingClients(rig: FastRig, port: number, count: number): Promise<readonly TcpPeer[]> {
  const clients: TcpPeer[] = [];
  while (clients.length < count) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - clients.length) }, () => connectTcp(port));
    clients.push(...(await Promise.all(some)));
  }
  for (const [i, client] of clients.entries()) client.send(`${i}.`);
  await waitFor('all to wait', () => rig.stats(TCP.name).counters.waiting === count);
  return clients;
}

async function pair(t: TestContext): Promise<readonly [FastRig, FastRig]> {
  return [await fastRig(t), await fastRig(t)];
}

test('1,000 clients that wait go on waiting in a successor, in their order and with the time that is left', async (t) => {
  const [before, after] = await pair(t);
  const clients = await waitingClients(before, await before.plane.open(TCP, backends([])), CLIENTS);
  const order = (await listed(before.plane, TCP.id)).map(({ client }) => client.port);
  const left = Math.max(...(await listed(before.plane, TCP.id)).map(({ expiresMs = 0 }) => expiresMs));
  // One has ended its direction, one goes while nobody looks.
  clients[0]?.end();
  await passOn(before.plane, after.plane);
  await waitFor('all to wait there', () => after.stats(TCP.name).counters.waiting === CLIENTS);
  const there = await listed(after.plane, TCP.id);
  assert.deepEqual(new Set(there.map(({ state }) => state)), new Set(['waiting']));
  assert.ok(there.every(({ expiresMs = 0 }) => expiresMs > 0 && expiresMs <= left));
  assert.deepEqual(
    there.map(({ client }) => client.port),
    order,
  );
  clients[1]?.reset();
  await waitFor('it to be forgotten', () => after.stats(TCP.name).counters.waiting === CLIENTS - 1);

  const arrived: number[] = [];
  const server = await TcpBackend.raw(t, (socket) => {
    socket.once('data', (bytes) => arrived.push(Number.parseFloat(String(bytes))));
    socket.pipe(socket);
  });
  after.plane.update(TCP.id, backends([server.endpoint]));
  await waitFor('all to be served', () => arrived.length === CLIENTS - 1);
  for (const [i, client] of clients.entries()) if (i !== 1) await client.hasReceived(`${i}.`.length);
  const { connections, active, waiting, waitTimeouts, noEndpoints } = after.stats(TCP.name).counters;
  assert.deepEqual([connections, waiting, waitTimeouts, noEndpoints], [CLIENTS, 0, 0, 0]);
  assert.ok(active >= CLIENTS - 2, `${active}`);
  for (const client of clients) client.reset();
});

test('a successor that has an endpoint serves those who waited at once, and knows for how long', async (t) => {
  const before = await fastRig(t);
  const [client] = await waitingClients(before, await before.plane.open(TCP, backends([])), 1);
  await sleep(WAITED_MS);
  // The clocks of its threads begin only now.
  const after = await fastRig(t);
  const echo = await TcpBackend.echo(t);
  const handOver = before.plane.handOver ?? assert.fail();
  // The list changes as the workers stand still.
  await handOver.freeze();
  before.plane.update(TCP.id, backends([echo.endpoint]));
  // Clients wait on meanwhile, or who comes then would seem to have come before them.
  await passOn(before.plane, after.plane, () => sleep(WAITED_MS));
  await client?.hasReceived(2);
  const { waitMs, waiting } = after.stats(TCP.name).counters;
  assert.ok(waitMs >= 2 * WAITED_MS && waiting === 0, `${waitMs} ms, ${waiting} waiting`);
  client?.end();
});

test('what clients of UDP have asked goes along', async (t) => {
  const [before, after] = await pair(t);
  const port = await before.plane.open(UDP, backends([]));
  const clients = await Promise.all(Array.from({ length: 20 }, () => UdpClient.connect(t, port)));
  for (const [i, client] of clients.entries()) {
    await client.delivered(`${i} a`);
    await client.delivered(`${i} b`);
    await waitFor('it to wait', () => before.stats(UDP.name).counters.waiting === i + 1);
  }
  const firstEnds = async (plane: FastRig['plane']) =>
    Math.min(...(await listed(plane, UDP.id)).map(({ expiresMs = 0 }) => expiresMs));
  const left = await firstEnds(before.plane);
  await passOn(before.plane, after.plane);
  await waitFor('all to wait there', () => after.stats(UDP.name).counters.waiting === clients.length);
  assert.ok((await firstEnds(after.plane)) <= left, 'no datagram is younger there');
  await clients[0]?.delivered('0 c');
  const echo = await UdpBackend.echo(t);
  after.plane.update(UDP.id, backends([echo.endpoint]));
  await waitFor('the answers', () => clients.every(({ received }) => received.length >= 2));
  await waitFor('the last', () => clients[0]?.received.length === 3);
  for (const [i, client] of clients.entries()) {
    assert.deepEqual(client.texts, [`${i} a`, `${i} b`, ...(i === 0 ? ['0 c'] : [])]);
  }
  assert.equal(after.stats(UDP.name).counters.waiting, 0);
});

test('a client whose time is over as it is handed over is told so by the successor', async (t) => {
  const [before, after] = await pair(t);
  // Ends are looked for each 100 ms only: this one is handed over before.
  const shortWait = backends([], 20);
  const [tcpPort, udpPort] = [await before.plane.open(TCP, shortWait), await before.plane.open(UDP, shortWait)];
  const ofTcp = await connectTcp(tcpPort);
  const ofUdp = await UdpClient.connect(t, udpPort);
  await ofUdp.delivered('a');
  await sleep(40);
  await passOn(before.plane, after.plane);
  await waitFor('the refusal', () => ofUdp.refusals === 1);
  assert.equal(await ofTcp.finished(), 'ECONNRESET');
  for (const { name } of [TCP, UDP]) {
    const { waiting, waitTimeouts } = after.stats(name).counters;
    assert.deepEqual([waiting, waitTimeouts], [0, 1]);
  }
});
