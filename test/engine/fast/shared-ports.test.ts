import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { namedEndpoint } from '../../../src/model/endpoint.ts';
import type { SchedulerName } from '../../../src/model/scheduler.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { connectTcp, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { passOn } from './pass-on.ts';
import { type FastRig, fastRig, faultyRig, openDescriptors, openPort } from './rig.ts';

/*
 * Service ports of which two workers carry the connections (docs/adr/0027): the home accepts all clients, and of every
 * two the other worker carries one.
 */
const SHARED = { workers: 2, spread: 'clients' } as const;
/** Open connections move there, too. */
const MOVING = { workers: 2, spread: 'always' } as const;
const NAME = 'a/shared';

async function servers(t: TestContext, count: number): Promise<readonly TcpBackend[]> {
  return Promise.all(Array.from({ length: count }, (_, i) => TcpBackend.named(t, `server ${i}`)));
}

const endpointsOf = (backends: readonly Pick<TcpBackend, 'endpoint'>[]) => backends.map(({ endpoint }) => endpoint);

/** How many connections each of them has had. */
const sharesOf = (backends: readonly TcpBackend[]) => backends.map(({ peers }) => peers.length);

async function connectMany(port: number, count: number): Promise<readonly TcpPeer[]> {
  const clients: TcpPeer[] = [];
  for (let i = 0; i < count; i++) clients.push(await connectTcp(port));
  return clients;
}

/** The connections that the death of a worker has left, which all go on. */
async function survivors(clients: readonly TcpPeer[]): Promise<readonly TcpPeer[]> {
  const before = clients.map(({ receivedBytes }) => receivedBytes);
  for (const client of clients) client.send('x');
  await waitFor('all to be answered or reset', () =>
    clients.every(({ receivedBytes, error }, i) => receivedBytes > (before[i] as number) || error === 'ECONNRESET'),
  );
  return clients.filter(({ error }) => error === undefined);
}

/** Each sends, and gets its own back. */
async function exchange(clients: readonly TcpPeer[], text: string): Promise<void> {
  const before = clients.map(({ receivedBytes }) => receivedBytes);
  for (const client of clients) client.send(text);
  await waitFor('all answers', () =>
    clients.every(({ receivedBytes }, i) => receivedBytes === (before[i] as number) + text.length),
  );
}

async function openWith(
  rig: FastRig,
  backends: readonly Pick<TcpBackend, 'endpoint'>[],
  scheduler: SchedulerName,
): Promise<number> {
  const spec = listenSpec({ name: NAME, protocol: 'TCP', address: '127.0.0.1', port: 0 });
  return rig.plane.open(spec, { endpoints: endpointsOf(backends), affinity: { type: 'None' }, scheduler });
}

test('turns are strict over two workers: a thousand open connections over ten endpoints are a hundred each', async (t) => {
  const rig = await fastRig(t, MOVING);
  const backends = await servers(t, 10);
  const clients = await connectMany(await openPort(rig, NAME, endpointsOf(backends)), 1000);
  await waitFor('all to be served', () => clients.every(({ receivedBytes }) => receivedBytes > 0));
  assert.deepEqual(
    sharesOf(backends),
    backends.map(() => 100),
  );
  const { counters, endpoints } = rig.stats(NAME);
  assert.deepEqual([counters.connections, counters.active, counters.connects], [1000, 1000, 1000]);
  assert.deepEqual(
    endpoints?.map((each) => [each.counters.connections, each.counters.active]),
    backends.map(() => [100, 100]),
  );
  for (const client of clients) client.end();
  await waitFor('the end of all', () => rig.stats(NAME).counters.active === 0);
});

test('the counts of least connections are whole, wherever a connection is carried', async (t) => {
  const rig = await fastRig(t, SHARED);
  const backends = await servers(t, 3);
  const port = await openWith(rig, backends, 'lc');
  const clients = await connectMany(port, 30);
  await waitFor('all to be served', () => clients.every(({ text }) => text.startsWith('server ')));
  assert.deepEqual(sharesOf(backends), [10, 10, 10]);
  for (const client of clients) if (client.text === 'server 0') client.end();
  await waitFor('the end of ten', () => rig.stats(NAME).counters.active === 20);
  // The home hears of an end a little later, so the first of these may go anywhere; the others make up for them.
  const more = await connectMany(port, 43);
  await waitFor('the next to be served', () => more.every(({ text }) => text.startsWith('server ')));
  const open = () => rig.stats(NAME).endpoints?.map(({ counters }) => counters.active);
  await waitFor('each to have a third', () => isDeepStrictEqual(open(), [21, 21, 21]));
});

test('list shows the connections of both workers, and each client once', async (t) => {
  const rig = await fastRig(t, SHARED);
  const [backend] = (await servers(t, 1)) as [TcpBackend];
  const clients = await connectMany(await openPort(rig, NAME, [backend.endpoint]), 50);
  await waitFor('all to be served', () => rig.stats(NAME).counters.connects === 50);
  const listed: number[] = [];
  for await (const page of rig.plane.connections(rig.stats(NAME).id)) {
    for (const { client } of page) listed.push(client.port);
  }
  assert.deepEqual(listed.toSorted(), clients.map(({ socket }) => socket.localPort as number).toSorted());
});

test('when a carrier dies, only what it carries is lost, and the home counts on', async (t) => {
  const rig = await faultyRig(t, SHARED);
  const backend = await TcpBackend.echo(t);
  const port = await openPort(rig, NAME, [backend.endpoint]);
  const before = openDescriptors();
  const clients = await connectMany(port, 20);
  await exchange(clients, 'a');
  rig.order('throw', 1);
  await waitFor('the worker to fail', () => rig.log.of('error').length > 0);
  const kept = await survivors(clients);
  // A dial of the carrier's that took too long has ended at home.
  assert.ok(kept.length >= 10 && kept.length < 20, `${kept.length} of 20 are left`);
  const next = await connectMany(port, 10);
  await exchange(next, 'c');
  for (const client of [...kept, ...next]) client.end();
  for (const peer of backend.peers) peer.end();
  await waitFor('the end of all', () => rig.stats(NAME).counters.active === 0);
  assert.equal(rig.stats(NAME).counters.connections, 30);
  await waitFor('no descriptor to be left behind', () => openDescriptors() <= before + 4);
});

test('when a carrier dies, what it has given back goes on', async (t) => {
  const rig = await faultyRig(t, SHARED);
  const backend = await TcpBackend.echo(t);
  // Nothing listens there, and it comes first for every client.
  const dead = namedEndpoint(backend.endpoint.address, 1);
  const port = await openWith(rig, [{ endpoint: dead }, backend], 'fo');
  const clients = await connectMany(port, 20);
  await exchange(clients, 'a');
  rig.order('throw', 1);
  await waitFor('the worker to fail', () => rig.log.of('error').length > 0);
  assert.equal((await survivors(clients)).length, 20);
});

test('when the home dies, what another worker carries goes on', async (t) => {
  const rig = await faultyRig(t, SHARED);
  const backend = await TcpBackend.echo(t);
  const port = await openPort(rig, NAME, [backend.endpoint]);
  const clients = await connectMany(port, 20);
  await exchange(clients, 'a');
  rig.order('throw', 0);
  await waitFor('the worker to fail', () => rig.log.of('error').length > 0);
  const kept = await survivors(clients);
  assert.ok(kept.length > 0 && kept.length <= 10, `${kept.length} of 20 are left`);
  const next = await connectMany(port, 10);
  await exchange(next, 'c');
  await waitFor('all to count', () => rig.stats(NAME).counters.active === kept.length + next.length);
});

test('connections of both workers go to a successor', async (t) => {
  const [before, after] = [await fastRig(t, MOVING), await fastRig(t, MOVING)];
  const backend = await TcpBackend.echo(t);
  const clients = await connectMany(await openPort(before, NAME, [backend.endpoint]), 40);
  await exchange(clients, 'a');
  await passOn(before.plane, after.plane);
  await exchange(clients, 'b');
  await waitFor('all to count', () => after.stats(NAME).counters.active === 40);
  assert.equal(after.stats(NAME).counters.connections, 40);
});

test('a port that closes leaves its connections to both workers', async (t) => {
  const rig = await fastRig(t, SHARED);
  const backend = await TcpBackend.echo(t);
  const clients = await connectMany(await openPort(rig, NAME, [backend.endpoint]), 10);
  await exchange(clients, 'a');
  await rig.plane.close(rig.stats(NAME).id);
  await exchange(clients, 'b');
});
