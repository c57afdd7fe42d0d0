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

/*
 * UDP ports of which two workers carry the flows (docs/adr/0037): the home gives each flow a socket of its own once it
 * was answered, and passes it on at the client's next datagram.
 */
const NAME = 'a/udp';
const SHARED = { workers: 2, spread: 'always' } as const;

/** Fewer than may have a socket of their own. */
const CLIENTS = 60;
const MAX_OWN_SOCKETS = 64;

/** So many questions of a client, and the last of them go to the other worker. */
const ROUNDS = 3;

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

/** By the number that begins each datagram: the rest of each, in the order of arrival. */
function arrivalsOf(backends: readonly UdpBackend[]): ReadonlyMap<string, readonly string[]> {
  const arrived = new Map<string, string[]>();
  for (const text of backends.flatMap(({ texts }) => texts)) {
    const [number = '', rest = ''] = text.split(' ');
    arrived.set(number, [...(arrived.get(number) ?? []), rest]);
  }
  return arrived;
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

/** Asks until all flows that can move have moved: one at a time, as one of each read does. */
async function askUntilMoved(clients: readonly UdpClient[], text: string): Promise<void> {
  for (const [number, client] of clients.entries()) {
    for (let round = 0; round < ROUNDS; round++)
      assert.equal(await client.ask(`${number} ${text}`), `${number} ${text}`);
  }
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

/** Clients whose flows the other worker carries. */
async function moved(t: TestContext, rig: FastRig, backends: readonly UdpBackend[], count = CLIENTS) {
  const port = await openShared(rig, backends);
  const clients = await connectAll(t, port, count);
  await askUntilMoved(clients, 'first');
  assert.equal(socketsAt(port), 1 + count);
  return { port, clients };
}

test('two workers serve 1,000 flows of one port: ten endpoints get 100 each, and the limits hold', async (t) => {
  // More than the limit of one Service port, because a namespace gets only a share of all.
  const rig = await fastRig(t, { ...SHARED, udpMaxFlows: 2000 });
  const backends = await echoes(t, 10);
  const port = await openShared(rig, backends);
  const clients = await connectAll(t, port, 1000);
  assert.deepEqual(await askAll(clients, 'x'), questions('x', 1000));
  await askUntilMoved(clients.slice(0, 70), 'x');
  assert.equal(socketsAt(port), 1 + MAX_OWN_SOCKETS);
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
  for await (const page of rig.plane.connections(rig.stats(NAME).id)) listed.push(...page);
  assert.equal(listed.length, 1000);
  await rig.plane.close(rig.stats(NAME).id);
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
    const clients = await connectAll(t, port, 10, from);
    const names = new Set<string>();
    for (let round = 0; round < ROUNDS; round++) for (const name of await askAll(clients, 'x')) names.add(name);
    assert.equal(names.size, 1);
    replies.push(...names);
  }
  assert.deepEqual(replies.toSorted(), ['one', 'three', 'two']);
});

test('flows that move lose no datagram, keep their order and their source, and other clients lose none', async (t) => {
  const rig = await fastRig(t, { ...SHARED, workers: 3 });
  const backends = await echoes(t, 3);
  const port = await openShared(rig, backends);
  const rounds = 40;
  const texts = Array.from({ length: rounds }, (_, round) => `${round}`);
  for (let wave = 0; wave < 4; wave++) {
    const clients = await connectAll(t, port, 15);
    // Without waiting for answers, so that some come at each moment of a move.
    for (const round of texts) {
      for (const [number, client] of clients.entries()) client.send(`${wave * 15 + number} ${round}`);
      if (Number(round) % 2 === 0) await setImmediate();
    }
    await waitFor('all answers', () => clients.every(({ received }) => received.length === rounds));
  }
  assert.ok(socketsAt(port) > 1);
  for (const [number, arrived] of arrivalsOf(backends)) assert.deepEqual(arrived, texts, `of client ${number}`);
  assert.deepEqual(countedSources(backends), Array(CLIENTS).fill(1));
  assert.equal(rig.stats(NAME).counters.connections, CLIENTS);
  assert.deepEqual(rig.events, []);
});

test('flows of both workers move to a successor with fewer or more, with all that waits', async (t) => {
  const backends = await echoes(t, 3);
  let from = await fastRig(t, SHARED);
  const { port, clients } = await moved(t, from, backends);
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
    assert.equal(socketsAt(port), 1 + CLIENTS);
    from = to;
  }
  await waitFor('the new clients', () => sourcesOf(backends).size === CLIENTS + 15);
  assert.deepEqual(countedSources(backends), Array(CLIENTS + 15).fill(1));
  assert.equal(from.stats(NAME).counters.connections, CLIENTS + 15);
  await from.plane.close(from.stats(NAME).id);
  assert.equal(socketsAt(port), 0);
});

test('a hand-over that fails changes nothing for flows of both workers', async (t) => {
  const rig = await fastRig(t, SHARED);
  const { port, clients } = await moved(t, rig, await echoes(t, 2));
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

test('when the endpoint of flows in another worker refuses, their next datagrams go to the next one', async (t) => {
  const rig = await fastRig(t, SHARED);
  const [first, second] = [await UdpBackend.echo(t), await UdpBackend.echo(t)];
  const { clients } = await moved(t, rig, [first], 10);
  await rig.plane.update(rig.stats(NAME).id, {
    endpoints: [first.endpoint, second.endpoint],
    affinity: { type: 'None' },
  });
  await first.stop();
  for (const client of clients) client.send('lost');
  await waitFor('the refusals', () => rig.stats(NAME).counters.failedRefused >= 10);
  for (const client of clients) await client.ask('again');
  assert.ok(second.arrivals.length >= 10);
  await waitFor('the refused flows to count no longer', () => rig.stats(NAME).counters.active === 10);
});

test('what waits for a flow whose endpoint goes is answered by another one', async (t) => {
  const rig = await fastRig(t, SHARED);
  const [leaving, staying] = [await UdpBackend.echo(t), await UdpBackend.echo(t)];
  const { port, clients } = await moved(t, rig, [leaving], 10);
  const { id } = rig.stats(NAME);
  // Draining: what has no answer yet gets one, and the next datagram goes elsewhere.
  await rig.plane.update(id, {
    endpoints: [staying.endpoint],
    draining: [leaving.endpoint],
    affinity: { type: 'None' },
  });
  for (const client of clients) client.send('next');
  await waitFor('answers', () => clients.every(({ texts }) => texts.at(-1) === 'next'));
  for (const flow of leaving.flows) leaving.push(flow, 'late');
  await waitFor('late answers', () => clients.every(({ texts }) => texts.at(-1) === 'late'));
  assert.equal(rig.stats(NAME).counters.active, 20);
  assert.equal(socketsAt(port), 1);
  // Gone.
  await askUntilMoved(clients, 'more');
  await rig.plane.update(id, { endpoints: [leaving.endpoint], affinity: { type: 'None' } });
  assert.deepEqual(await askAll(clients, 'back'), questions('back', 10));
  assert.equal(rig.stats(NAME).counters.connections, 30);
});

for (const [index, who] of ['home', 'carrier'].entries()) {
  test(`when the ${who} of a shared port dies, the flows of the other worker go on, and new ones begin`, async (t) => {
    const rig = await faultyRig(t, SHARED);
    const backends = await echoes(t, 2);
    const { port, clients } = await moved(t, rig, backends, 30);
    // These stay at home.
    const atHome = await connectAll(t, port, 30);
    await Promise.all(atHome.map((client, number) => client.ask(`${number + 30} first`)));
    const all = [...clients, ...atHome];
    rig.order('throw', index);
    await waitFor('the worker to fail', () => rig.log.of('error').length > 0);
    // What comes to a socket of the dead worker before it is closed is lost.
    if (who === 'carrier') await waitFor('its sockets to be closed', () => socketsAt(port) === 1);
    // They wait for the successor of the dead worker, if they need it.
    const late = await connectAll(t, port, 30);
    const [again, lateAnswers] = await Promise.all([askAll(all, 'again'), askAll(late, 'late')]);
    assert.deepEqual(again, questions('again', 60));
    assert.deepEqual(lateAnswers, questions('late', 30));
    assert.deepEqual(await askAll(all, 'once more'), questions('once more', 60));
    const sources = sourcesOf(backends, (text) => !/late/.test(text));
    const kept = [...sources.keys()].filter((number) => sources.get(number)?.length === 1);
    const isAtHome = (number: string) => Number(number) >= 30;
    assert.deepEqual(
      kept.map(Number).toSorted((a, b) => a - b),
      [...sources.keys()]
        .filter((number) => isAtHome(number) === (who === 'carrier'))
        .map(Number)
        .toSorted((a, b) => a - b),
    );
    const { counters } = rig.stats(NAME);
    assert.deepEqual([counters.active, counters.connections], [90, 120]);
    // Nothing is left taken: the counts of open flows decide picks of least-connections.
    await rig.plane.close(rig.stats(NAME).id);
    assert.equal(socketsAt(port), 0);
  });
}
