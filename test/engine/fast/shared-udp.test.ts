import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { before, type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { Backends } from '../../../src/model/data-plane.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { handOverOf, passOn } from './pass-on.ts';
import { type FastRig, fastRig, faultyRig, openPort } from './rig.ts';

const NAME = 'a/udp';
const SHARED = { workers: 2, spread: 'always' } as const;

/** So many that the kernel gives some to each of two or three sockets. */
const CLIENTS = 60;

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

async function connectAll(t: TestContext, port: number, count = CLIENTS, from?: string): Promise<readonly UdpClient[]> {
  const clients: UdpClient[] = [];
  for (let i = 0; i < count; i++) clients.push(await UdpClient.connect(t, port, from === undefined ? {} : { from }));
  return clients;
}

/** All at once; returns the replies. */
function askAll(clients: readonly UdpClient[], text: string): Promise<readonly string[]> {
  return Promise.all(clients.map((client, number) => client.ask(`${number} ${text}`)));
}

const questions = (text: string, count = CLIENTS) => Array.from({ length: count }, (_, number) => `${number} ${text}`);

/** By the number that begins each question: the source ports that this client's datagrams came from. */
function sourcesOf(
  backends: readonly UdpBackend[],
  counts: (text: string) => boolean = () => true,
): ReadonlyMap<string, readonly number[]> {
  const sources = new Map<string, number[]>();
  for (const { datagram, from } of backends.flatMap(({ arrivals }) => arrivals)) {
    if (!counts(String(datagram))) continue;
    const [number = ''] = String(datagram).split(' ');
    const known = sources.get(number) ?? [];
    if (!known.includes(from)) known.push(from);
    sources.set(number, known);
  }
  return sources;
}

/** Sockets at this local port. */
function socketsAt(port: number): number {
  const hex = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const locals = readFileSync('/proc/self/net/udp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/)[1]);
  return locals.filter((local) => local?.endsWith(hex)).length;
}

/** By how many source ports each client was served. */
function countedSources(backends: readonly UdpBackend[]): readonly number[] {
  return [...sourcesOf(backends).values()].map(({ length }) => length);
}

async function open({ plane }: FastRig, backends: Backends): Promise<number> {
  return plane.open(listenSpec({ name: NAME, protocol: 'UDP', address: '127.0.0.1', port: 0 }), backends);
}

async function echoes(t: TestContext, count: number): Promise<readonly UdpBackend[]> {
  return Promise.all(Array.from({ length: count }, () => UdpBackend.echo(t)));
}

function openShared(rig: FastRig, backends: readonly UdpBackend[]): Promise<number> {
  const endpoints = backends.map(({ endpoint }) => endpoint);
  return openPort(rig, NAME, endpoints, 'UDP');
}

test('two workers serve 1,000 flows of one port: ten endpoints get 100 each, and the limit holds', async (t) => {
  // More than the limit of one Service port, because a namespace gets only a share of all.
  const rig = await fastRig(t, { ...SHARED, udpMaxFlows: 2000 });
  const backends = await echoes(t, 10);
  const port = await openShared(rig, backends);
  assert.equal(socketsAt(port), 2);
  const clients = await connectAll(t, port, 1000);
  for (let round = 0; round < 2; round++) assert.deepEqual(await askAll(clients, 'x'), questions('x', 1000));
  assert.deepEqual(
    backends.map(({ flows }) => flows.length),
    Array(10).fill(100),
  );

  const late = await connectAll(t, port);
  for (const client of late) client.send('late');
  await waitFor('all to be refused', () => rig.stats(NAME).counters.limited === CLIENTS);
  const { counters, endpoints } = rig.stats(NAME);
  assert.deepEqual([counters.connections, counters.active], [1000, 1000]);
  assert.deepEqual(
    endpoints?.map(({ counters: { active } }) => active),
    Array(10).fill(100),
  );
  assert.ok(late.every(({ received }) => received.length === 0));
  const listed = [];
  for await (const page of rig.plane.connections(NAME)) listed.push(...page);
  assert.equal(listed.length, 1000);
  await rig.plane.close(NAME);
  assert.equal(socketsAt(port), 0);
});

test('all flows of a client address go to one endpoint, whichever worker carries them', async (t) => {
  const rig = await fastRig(t, SHARED);
  const backends = await Promise.all(['one', 'two', 'three'].map((name) => UdpBackend.named(t, name)));
  const port = await open(rig, {
    endpoints: backends.map(({ endpoint }) => endpoint),
    affinity: { type: 'ClientIP', timeoutSeconds: 60 },
  });
  const replies: string[] = [];
  for (const from of ['127.0.0.2', '127.0.0.3', '127.0.0.4']) {
    const names = new Set(await askAll(await connectAll(t, port, CLIENTS, from), 'x'));
    assert.equal(names.size, 1);
    replies.push(...names);
  }
  assert.deepEqual(replies.toSorted(), ['one', 'three', 'two']);
});

test('flows keep endpoint and source port when their port becomes busy, and no datagram is lost', async (t) => {
  const rig = await faultyRig(t, { workers: 3 });
  const backends = await echoes(t, 3);
  const port = await openShared(rig, backends);
  const clients = await connectAll(t, port);
  await askAll(clients, 'first');
  assert.equal(socketsAt(port), 1);
  rig.order('busy');
  let rounds = 1;
  // Also in the middle of it.
  for (; rounds < 5 || socketsAt(port) === 1; rounds++) {
    for (const [number, client] of clients.entries()) client.send(`${number} ${rounds}`);
    await setImmediate();
  }
  assert.equal(socketsAt(port), 3);
  await waitFor('all answers', () => clients.every(({ received }) => received.length === rounds));
  await askAll(clients, 'last');
  assert.deepEqual(countedSources(backends), Array(CLIENTS).fill(1));
  assert.equal(rig.stats(NAME).counters.connections, CLIENTS);
  assert.deepEqual(rig.events, []);
});

test('flows of both workers move to a successor with fewer or more, with all that waits', async (t) => {
  const backends = await echoes(t, 3);
  const first = await fastRig(t, SHARED);
  const port = await openShared(first, backends);
  const clients = await connectAll(t, port);
  await askAll(clients, 'first');
  let from = first;
  for (const workers of [1, 3, 2]) {
    const to = await fastRig(t, { workers });
    await passOn(from.plane, to.plane, async () => {
      for (const [number, client] of clients.entries()) await client.delivered(`${number} frozen`);
      // New clients, too.
      for (const client of await connectAll(t, port, 5))
        await client.delivered(`new${workers}${client.socket.address().port} x`);
    });
    await waitFor('what waited to be answered', () => clients.every(({ texts }) => texts.at(-1)?.endsWith('frozen')));
    await askAll(clients, `after ${workers}`);
    assert.equal(socketsAt(port), 2);
    from = to;
  }
  await waitFor('the new clients', () => sourcesOf(backends).size === CLIENTS + 15);
  assert.deepEqual(countedSources(backends), Array(CLIENTS + 15).fill(1));
  assert.equal(from.stats(NAME).counters.connections, CLIENTS + 15);
});

test('a hand-over that fails changes nothing for flows of both workers', async (t) => {
  const rig = await fastRig(t, SHARED);
  const backends = await echoes(t, 2);
  const port = await openShared(rig, backends);
  const clients = await connectAll(t, port);
  await askAll(clients, 'before');
  const handOver = handOverOf(rig.plane);
  await handOver.freeze();
  for (const [number, client] of clients.entries()) await client.delivered(`${number} frozen`);
  const late = await connectAll(t, port, 5);
  for (const client of late) await client.delivered('late x');
  handOver.thaw();
  await waitFor('the answers', () =>
    [...clients, ...late].every(({ texts }) => /frozen|late/.test(texts.at(-1) ?? '')),
  );
  assert.equal(rig.stats(NAME).counters.connections, CLIENTS + 5);
});

for (const [index, who] of ['home', 'carrier'].entries()) {
  test(`when the ${who} of a shared port dies, the flows of the other worker go on, and new ones begin`, async (t) => {
    const rig = await faultyRig(t, SHARED);
    const backends = await echoes(t, 2);
    const port = await openShared(rig, backends);
    const clients = await connectAll(t, port);
    await askAll(clients, 'before');
    rig.order('throw', index);
    await waitFor('the worker to fail', () => rig.log.of('error').length > 0);
    // They wait for the successor of the dead worker, if they need it.
    const late = await connectAll(t, port);
    const [again, lateAnswers] = await Promise.all([askAll(clients, 'again'), askAll(late, 'late')]);
    assert.deepEqual(again, questions('again'));
    assert.deepEqual(lateAnswers, questions('late'));
    assert.deepEqual(await askAll(clients, 'once more'), questions('once more'));
    const sources = sourcesOf(backends, (text) => !/late/.test(text));
    const kept = [...sources.values()].filter(({ length }) => length === 1).length;
    assert.ok(kept > 0 && kept < CLIENTS, `${kept} of ${CLIENTS} flows went on`);
    const { counters } = rig.stats(NAME);
    assert.deepEqual([counters.active, counters.connections], [2 * CLIENTS, 3 * CLIENTS - kept]);
    // Nothing is left taken: the counts of open flows decide picks of least-connections.
    await rig.plane.close(NAME);
    assert.equal(socketsAt(port), 0);
  });
}
