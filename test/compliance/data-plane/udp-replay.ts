import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointAt, endpointsOf, type Rig, type RigFactory, SETTLED_MS } from './harness.ts';
import { NODE_ADDRESSES, UNREACHABLE } from './network.ts';

const REPLAY_MS = 100;
const LONG_REPLAY_MS = 1_000;

/** No refusal takes longer, see src/engine/replay.ts. */
const ROUND_TRIP_MS = 100;

/** Backends that refuse. */
function refusing(t: TestContext, count: number): Promise<UdpBackend[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const backend = await UdpBackend.start(t);
      await backend.stop();
      return backend;
    }),
  );
}

/** A Service port that sends to another endpoint after silence, too. */
async function openReplaying(rig: Rig, servers: readonly UdpBackend[], replayMs = REPLAY_MS) {
  const { name, port } = await rig.open('UDP', endpointsOf(servers));
  const update = (to: readonly UdpBackend[], udpReplayMs = replayMs) =>
    rig.update(name, { ...backends(endpointsOf(to)), udpReplayMs });
  await update(servers);
  return { name, port, update };
}

export function udpReplayTests(makeRig: RigFactory): void {
  test('a refused datagram goes to the next endpoint at once, so no question is lost', async (t) => {
    const rig = await makeRig(t);
    const dead = await refusing(t, 3);
    const alive = await UdpBackend.echo(t);
    const { name, port } = await rig.open('UDP', endpointsOf([...dead, alive]));
    for (let i = 0; i < 8; i++) {
      const client = await UdpClient.connect(t, port);
      client.send(`question ${i}`);
      await waitFor(`answer ${i}`, () => client.received.length === 1);
    }
    assert.deepEqual(
      alive.texts,
      Array.from({ length: 8 }, (_, i) => `question ${i}`),
      'each once',
    );
    await waitFor('one flow each', () => rig.counters(name).active === 8);
    const { failedRefused, retries, exhausted } = rig.counters(name);
    assert.ok(failedRefused > 0);
    assert.deepEqual({ retries, exhausted }, { retries: failedRefused, exhausted: 0 });
  });

  test('an endpoint that cannot be reached is no different', async (t) => {
    const rig = await makeRig(t);
    const alive = await UdpBackend.echo(t);
    const { name, port } = await rig.open('UDP', [endpointAt(UNREACHABLE, 53), alive.endpoint]);
    for (let i = 0; i < 2; i++) {
      const client = await UdpClient.connect(t, port);
      client.send('?');
      await waitFor('the answer', () => client.received.length === 1);
    }
    assert.deepEqual(alive.texts, ['?', '?']);
    await waitFor('it to be counted', () => rig.counters(name).failedUnreachable > 0);
  });

  test('the first datagrams of a flow arrive at the next endpoint in order, each once', async (t) => {
    const rig = await makeRig(t);
    const [dead] = await refusing(t, 1);
    const alive = await UdpBackend.start(t);
    const { port } = await rig.open('UDP', endpointsOf([dead as UdpBackend, alive]));
    const clients = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
    for (const each of clients) for (const text of ['A', 'AAAA']) each.send(text);
    await waitFor('all', () => alive.arrivals.length === 4);
    await sleep(SETTLED_MS);
    const flows = Map.groupBy(alive.arrivals, ({ from }) => from);
    for (const arrivals of flows.values()) {
      assert.deepEqual(
        arrivals.map(({ datagram }) => String(datagram)),
        ['A', 'AAAA'],
      );
    }
  });

  test('a datagram that follows an answer is not sent twice', async (t) => {
    const rig = await makeRig(t);
    const [leaving, staying] = [await UdpBackend.named(t, 'leaving'), await UdpBackend.named(t, 'staying')];
    const { name, port } = await rig.open('UDP', endpointsOf([leaving]));
    const client = await UdpClient.connect(t, port);
    assert.equal(await client.ask('first'), 'leaving');
    await rig.update(name, backends(endpointsOf([leaving, staying])));
    await leaving.stop();
    client.send('second');
    await waitFor('the flow to end', () => rig.counters(name).active === 0);
    await waitFor('an answer from the other', () => {
      client.send('third');
      return client.texts.includes('staying');
    });
    assert.ok(!staying.texts.includes('second') && !staying.texts.includes('first'), `${staying.texts}`);
  });

  test('datagrams that arrived are not sent again when the endpoint refuses a later one', async (t) => {
    const rig = await makeRig(t);
    const [leaving, staying] = [await UdpBackend.start(t), await UdpBackend.start(t)];
    const { name, port } = await rig.open('UDP', endpointsOf([leaving]));
    const client = await UdpClient.connect(t, port);
    for (const text of ['one', 'two', 'three']) {
      client.send(text);
      await waitFor(text, () => leaving.texts.includes(text));
    }
    await sleep(2 * ROUND_TRIP_MS);
    await rig.update(name, backends(endpointsOf([leaving, staying])));
    await leaving.stop();
    for (let i = 0; staying.arrivals.length === 0; i++) {
      client.send(`later ${i}`);
      await sleep(10);
    }
    assert.deepEqual(
      staying.texts.filter((text) => !text.startsWith('later')),
      [],
    );
  });

  test('when all endpoints refuse, the client is refused, and its next datagram tries again', async (t) => {
    const rig = await makeRig(t);
    const dead = await refusing(t, 2);
    const { name, port } = await rig.open('UDP', endpointsOf(dead));
    const client = await UdpClient.connect(t, port);
    client.send('?');
    await waitFor('it to end', () => rig.counters(name).exhausted === 1);
    assert.deepEqual(await rig.reported('clientRefused', 1), [{ name, client: '127.0.0.1', reason: 'exhausted' }]);
    assert.equal(rig.counters(name).active, 0);
    // Their kernels limit how often they refuse (`icmp_ratelimit`): a second question would wait for an answer.
    const tried = rig.counters(name).failedRefused;
    if (rig.dialsBeginAnew) assert.ok(tried >= 2, `${tried} tries`);
    else assert.equal(tried, 2, 'each is asked once');
    const alive = await UdpBackend.named(t, 'alive');
    await rig.update(name, backends(endpointsOf([alive])));
    assert.equal(await client.ask('again'), 'alive');
  });

  test('a client learns that its only endpoint refuses, also after answers', async (t) => {
    const rig = await makeRig(t);
    const backend = await UdpBackend.named(t, 'here');
    const { port } = await rig.open('UDP', [backend.endpoint]);
    const [old, fresh] = [
      await UdpClient.connect(t, port),
      await UdpClient.connect(t, port, { to: NODE_ADDRESSES[0] }),
    ];
    assert.equal(await old.ask('?'), 'here');
    await backend.stop();
    for (const client of [old, fresh]) {
      client.send('?');
      await waitFor('the refusal', () => client.refusals > 0);
    }
    await sleep(SETTLED_MS);
    assert.deepEqual([old.refusals, fresh.refusals], [1, 1], 'one for each datagram');
  });

  test('no client is refused whose endpoint is silent, or whose datagram another one gets', async (t) => {
    const rig = await makeRig(t);
    const [silent, alive] = [await UdpBackend.start(t), await UdpBackend.named(t, 'alive')];
    const [dead] = await refusing(t, 1);
    const retried = await rig.open('UDP', endpointsOf([dead as UdpBackend, alive]));
    const { name, port } = await openReplaying(rig, [silent]);
    const clients = [await UdpClient.connect(t, port)];
    clients[0]?.send('?');
    for (let i = 0; i < 2; i++) {
      const client = await UdpClient.connect(t, retried.port);
      assert.equal(await client.ask('?'), 'alive');
      clients.push(client);
    }
    await waitFor('all tries to be in vain', () => rig.counters(name).exhausted === 1);
    await sleep(SETTLED_MS);
    for (const client of clients) assert.equal(client.refusals, 0);
  });

  test('of a flood of datagrams that are refused, only some are answered', async (t) => {
    const rig = await makeRig(t);
    const dead = await refusing(t, 1);
    const { name, port } = await rig.open('UDP', endpointsOf(dead));
    const clients = await Promise.all(Array.from({ length: 400 }, () => UdpClient.connect(t, port)));
    const began = performance.now();
    for (const client of clients) client.send('?');
    const refused = () => clients.filter(({ refusals }) => refusals > 0).length;
    await waitFor('some to be refused', () => refused() > 0);
    await waitFor('all to end', () => rig.counters(name).exhausted === clients.length || rig.dialsBeginAnew);
    await sleep(SETTLED_MS);
    const allowed = 2 * (50 + (100 * (performance.now() - began)) / 1000 + 1);
    assert.ok(refused() <= allowed || rig.dialsBeginAnew, `${refused()} of ${allowed}`);
  });

  test('of many endpoints that refuse, one datagram reaches no more than eight', async (t) => {
    const rig = await makeRig(t);
    const dead = await refusing(t, 20);
    const { name, port } = await rig.open('UDP', endpointsOf(dead));
    (await UdpClient.connect(t, port)).send('?');
    await waitFor('it to end', () => rig.counters(name).exhausted === 1);
    await sleep(SETTLED_MS);
    if (rig.dialsBeginAnew) assert.ok(rig.counters(name).failedRefused <= 20);
    else assert.equal(rig.counters(name).failedRefused, 8);
  });

  test('a silent endpoint keeps its datagram, unless the Service wants it sent again', async (t) => {
    const rig = await makeRig(t);
    const [silent, alive] = [await UdpBackend.start(t), await UdpBackend.named(t, 'alive')];
    const { port } = await rig.open('UDP', endpointsOf([silent]));
    const client = await UdpClient.connect(t, port);
    client.send('?');
    await waitFor('the question', () => silent.arrivals.length === 1);
    // So long that `alive` has answered by then, or the silent one would be asked once more.
    const { name, port: replaying, update } = await openReplaying(rig, [silent, alive], LONG_REPLAY_MS);
    const clients = [await UdpClient.connect(t, replaying), await UdpClient.connect(t, replaying)];
    for (const each of clients) each.send('!');
    for (const each of clients) await waitFor('an answer', () => each.received.length === 1);
    assert.deepEqual(silent.texts, ['?', '!']);
    assert.deepEqual(rig.events.dialFailed, [], 'silence is no failure');
    assert.equal(rig.counters(name).retries, 1);
    await update([silent]);
    await sleep(LONG_REPLAY_MS + SETTLED_MS);
    assert.equal(client.received.length, 0);
  });

  test('an answer that comes after its question was sent again still arrives', async (t) => {
    const rig = await makeRig(t);
    const [slow, other] = [await UdpBackend.start(t), await UdpBackend.start(t)];
    const { port } = await openReplaying(rig, [slow, other]);
    const client = await UdpClient.connect(t, port);
    client.send('?');
    await waitFor('both to be asked', () => slow.arrivals.length > 0 && other.arrivals.length > 0);
    for (const backend of [slow, other]) backend.push(backend.flows[0] ?? 0, 'late');
    await waitFor('both answers', () => client.received.length === 2);
    const asked = slow.arrivals.length + other.arrivals.length;
    await sleep(3 * REPLAY_MS);
    assert.equal(slow.arrivals.length + other.arrivals.length, asked, 'nobody is asked after an answer');
  });

  test('at the limit of flows, the last endpoint that was asked may still answer late', async (t) => {
    const rig = await makeRig(t, { udpMaxFlowsPerService: 1 });
    const late = await UdpBackend.start(t);
    const { name, port } = await openReplaying(rig, [late]);
    const client = await UdpClient.connect(t, port);
    client.send('?');
    await waitFor('all tries to be in vain', () => rig.counters(name).exhausted === 1);
    await late.pushed(late.flows.at(-1) as number, 'late');
    await waitFor('the answer', () => client.received.length === 1);
    assert.equal(rig.counters(name).limited, 0);
  });

  test('where questions can be asked twice, each is kept until it is answered', async (t) => {
    const rig = await makeRig(t);
    const answerFirst = () => UdpBackend.start(t, (datagram, reply) => String(datagram) === 'first' && reply('yes'));
    const [leaving, staying] = [await answerFirst(), await UdpBackend.echo(t)];
    const { port, update } = await openReplaying(rig, [leaving]);
    await update([leaving], 5000);
    const client = await UdpClient.connect(t, port);
    for (const text of ['first', 'second', 'third']) client.send(text);
    await waitFor('all questions', () => leaving.arrivals.length === 3);
    await waitFor('the answer', () => client.received.length === 1);
    await update([leaving, staying], 5000);
    await leaving.stop();
    client.send('fourth');
    await waitFor('the other answers', () => client.received.length === 4);
    assert.deepEqual(client.texts, ['yes', 'second', 'third', 'fourth']);
  });

  test('a question whose endpoint goes for good is asked again elsewhere', async (t) => {
    const rig = await makeRig(t);
    const [leaving, staying] = [await UdpBackend.start(t), await UdpBackend.named(t, 'staying')];
    const { name, port, update } = await openReplaying(rig, [leaving]);
    await update([leaving], 5000);
    const client = await UdpClient.connect(t, port);
    client.send('?');
    await waitFor('the question', () => leaving.arrivals.length === 1);
    await update([staying], 5000);
    await waitFor('an answer', () => client.texts.includes('staying'));
    await waitFor('one flow', () => rig.counters(name).active === 1);
  });

  test('one Service whose endpoints never answer leaves room for the others', async (t) => {
    const rig = await makeRig(t);
    const silent = await UdpBackend.start(t);
    const hoarder = await rig.open('UDP', endpointsOf([silent]));
    // Each keeps up to four.
    for (let i = 0; i < 10; i++) {
      const client = await UdpClient.connect(t, hoarder.port);
      for (let sent = 0; sent < 4; sent++) client.send(Buffer.alloc(60_000));
    }
    // Of clients that wait for their flow, too many datagrams are lost.
    const isAtLimit = () => rig.counters(hoarder.name).notKept > 0 || rig.counters(hoarder.name).limited > 0;
    await waitFor('its limit', () => isAtLimit() || rig.dialsBeginAnew);
    const dead = await refusing(t, 1);
    const alive = await UdpBackend.named(t, 'alive');
    const { name, port } = await rig.open('UDP', endpointsOf([...dead, alive]));
    for (let i = 0; i < 2; i++) assert.equal(await (await UdpClient.connect(t, port)).ask('?'), 'alive');
    assert.equal(rig.counters(name).notKept, 0);
  });
}
