import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ConnectionEntry } from '../../../src/model/connection-log.ts';
import type { Backends, DataPlaneOptions, OpenConnection, WaitingTerms } from '../../../src/model/data-plane.ts';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import type { ProxiedProtocol } from '../../../src/model/service-port.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, refusal, refusingEndpoint, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointAt, type Rig, type RigFactory, SETTLED_MS } from './harness.ts';
import { listed } from './inspecting.ts';
import { BLACK_HOLE, NODE_ADDRESSES } from './network.ts';

/** No test waits for one of these: a test of a limit sets it. */
const TERMS: WaitingTerms = { forEndpointsMs: 60_000, whileFullMs: 60_000, max: 1_000 };

interface Waited {
  readonly rig: Rig;
  readonly name: ServicePortName;
  readonly port: number;
  /** Gives the Service port these endpoints. */
  serve(endpoints: readonly NamedEndpoint[], more?: Partial<Backends>): Promise<void>;
  /** Resolves when so many clients wait. */
  waiting(count: number): Promise<unknown>;
}

/** A Service port whose clients wait. */
async function room(
  t: TestContext,
  makeRig: RigFactory,
  {
    protocol = 'TCP',
    terms = {},
    options,
    endpoints: atFirst = [],
    ...others
  }: Partial<Backends> & {
    readonly protocol?: ProxiedProtocol;
    readonly terms?: Partial<WaitingTerms>;
    readonly options?: Partial<DataPlaneOptions>;
  } = {},
): Promise<Waited> {
  const rig = await makeRig(t, options);
  const { name, port } = await rig.open(protocol, []);
  const serve = (endpoints: readonly NamedEndpoint[], more: Partial<Backends> = {}) =>
    rig.update(name, { ...backends(endpoints), waiting: { ...TERMS, ...terms }, ...others, ...more });
  await serve(atFirst);
  const waiting = (count: number) => waitFor(`${count} to wait`, () => rig.counters(name).waiting === count);
  return { rig, name, port, serve, waiting };
}

/** It asks, and reads until the other side ends. */
async function client(port: number, text = '', from?: string): Promise<TcpPeer> {
  const peer = await connectTcp(port, from === undefined ? {} : { from });
  if (text !== '') peer.send(text);
  return peer;
}

/** A server that notes the first bytes of each of its clients in turn, and answers them. */
async function noting(
  t: TestContext,
): Promise<{ readonly endpoint: NamedEndpoint; readonly asked: string[]; readonly peers: TcpPeer[] }> {
  const asked: string[] = [];
  const { endpoint, peers } = await TcpBackend.start(t, (peer) => {
    const index = asked.push('') - 1;
    peer.socket.on('data', (bytes) => {
      asked[index] += String(bytes);
      peer.send(`${bytes}!`);
    });
  });
  return { endpoint, asked, peers };
}

async function finished(clients: readonly TcpPeer[]): Promise<readonly string[]> {
  return await Promise.all(clients.map((each) => each.finished()));
}

export function waitingTests(makeRig: RigFactory): void {
  test('clients that come before the endpoints wait, and are served in the order in which they came', async (t) => {
    const { rig, name, port, serve, waiting } = await room(t, makeRig);
    const clients: TcpPeer[] = [];
    for (let i = 0; i < 20; i++) {
      clients.push(await client(port, `${i}`));
      await waiting(i + 1);
    }
    assert.deepEqual(await rig.reported('clientWaits', rig.events.clientWaits.length), rig.events.clientWaits);
    assert.ok(rig.events.clientWaits.length > 0);
    assert.equal(rig.counters(name).connections, 20);
    const server = await noting(t);
    // One at a time: connections that are dialled at once arrive in any order.
    await serve([server.endpoint], { maxConnections: 1 });
    for (const [i, each] of clients.entries()) {
      await each.hasReceived(`${i}!`.length);
      each.end();
      for (const peer of server.peers) peer.end();
      await each.finished();
    }
    // A dial that a hand-over ended has asked nothing.
    const asked = server.asked.filter((text) => text !== '');
    assert.deepEqual(asked, Array.from(clients.keys(), String));
    const {
      waiting: left,
      waitMs,
      waits100ms,
      waits1000ms,
      waits5000ms,
      noEndpoints,
      waitTimeouts,
    } = rig.counters(name);
    assert.deepEqual([left, noEndpoints, waitTimeouts, rig.events.clientRefused.length], [0, 0, 0, 0]);
    assert.ok(waitMs > 0 && waits100ms + waits1000ms + waits5000ms <= 20, `${waitMs} ms`);
  });

  test('a client that has ended its direction, or sent more than fits, is served whole', async (t) => {
    const { port, serve, waiting } = await room(t, makeRig);
    const many = Buffer.alloc(300_000, 'x');
    const [ended, full] = [await connectTcp(port), await connectTcp(port)];
    ended.end('question');
    full.end(many);
    await waiting(2);
    await serve([(await TcpBackend.echo(t)).endpoint]);
    assert.deepEqual(await finished([ended, full]), ['end', 'end']);
    assert.equal(ended.text, 'question');
    assert.ok(full.bytes.equals(many));
  });

  test('a client whose time is over is reset, and one that leaves is forgotten', async (t) => {
    const { rig, name, port, waiting } = await room(t, makeRig, { terms: { forEndpointsMs: 500 } });
    const began = performance.now();
    const [left, staying] = [await client(port, 'a'), await client(port, 'b')];
    await waiting(2);
    left.reset();
    await waiting(1);
    assert.equal(await staying.finished(), 'ECONNRESET');
    assert.ok(performance.now() - began >= 500);
    assert.deepEqual(await rig.reported('clientRefused', 1), [{ name, client: '127.0.0.1', reason: 'wait-timeout' }]);
    const { active, waiting: now, waitTimeouts } = rig.counters(name);
    assert.deepEqual([active, now, waitTimeouts], [0, 0, 1]);
  });

  test('when as many wait as may, the next one is refused', async (t) => {
    const { rig, name, port, serve, waiting } = await room(t, makeRig, { terms: { max: 2 } });
    const clients = [await client(port, 'a'), await client(port, 'b')];
    await waiting(2);
    assert.equal(await refusal(port, 'c'), 'ECONNRESET');
    assert.deepEqual(await rig.reported('clientRefused', 1), [{ name, client: '127.0.0.1', reason: 'wait-full' }]);
    assert.equal(rig.counters(name).waitRefused, 1);
    const server = await noting(t);
    await serve([server.endpoint]);
    for (const each of clients) await each.hasReceived(2);
    for (const each of clients) each.end();
  });

  test('without terms for it a client is refused at once', async (t) => {
    const { rig, name, port, serve } = await room(t, makeRig, { terms: { forEndpointsMs: 0 } });
    assert.equal(await refusal(port), 'ECONNRESET');
    await serve([], { waiting: undefined as never });
    assert.equal(await refusal(port), 'ECONNRESET');
    assert.equal(rig.counters(name).noEndpoints, 2);
    assert.equal(rig.counters(name).waits100ms, 0);
  });

  test('a client that every endpoint has refused waits for the next, and for one that answers again', async (t) => {
    const refusing = refusingEndpoint(t);
    const { rig, name, port, serve, waiting } = await room(t, makeRig, { endpoints: [refusing] });
    const first = await client(port, 'first');
    await waiting(1);
    const server = await noting(t);
    await serve([server.endpoint]);
    await first.hasReceived(6);
    assert.equal(rig.counters(name).exhausted, 0);
    first.end();

    // Nothing tells when the same address answers again.
    await serve([refusing]);
    const second = await client(port, 'second');
    await waiting(1);
    const { failedRefused } = rig.counters(name);
    await waitFor('it to be tried again', () => rig.counters(name).failedRefused > failedRefused);
    assert.equal(second.isOver, false);
    second.reset();
    await waiting(0);
  });

  test('a client that no endpoint lets in keeps nobody else waiting', async (t) => {
    const { rig, name, port, serve, waiting } = await room(t, makeRig, { endpoints: [refusingEndpoint(t)] });
    const denied = await client(port, 'denied');
    await waiting(1);
    const other = await connectTcp(port);
    await waitFor('it to be dialled for, too', () => rig.counters(name).failedRefused >= 8);
    const server = await noting(t);
    await serve([server.endpoint]);
    other.send('other');
    await Promise.all([denied.hasReceived(7), other.hasReceived(6)]);
    for (const each of [denied, other]) each.end();
  });

  test('an endpoint gets no more connections than it may; others wait their turn', async (t) => {
    const server = await noting(t);
    const { rig, name, port, waiting } = await room(t, makeRig, { endpoints: [server.endpoint], maxConnections: 2 });
    const clients: TcpPeer[] = [];
    for (const text of ['a', 'b']) {
      const one = await client(port, text);
      await one.hasReceived(2);
      clients.push(one);
    }
    for (const [i, text] of ['c', 'd'].entries()) {
      clients.push(await client(port, text));
      await waiting(i + 1);
    }
    assert.deepEqual(server.asked, ['a', 'b']);
    for (const [i, one] of clients.entries()) {
      one.end();
      server.peers[i]?.end();
      await one.finished();
      if (i < 2) await clients[i + 2]?.hasReceived(2);
    }
    assert.deepEqual(server.asked, ['a', 'b', 'c', 'd']);
    await waitFor('all to be over', () => rig.counters(name).active === 0);
  });

  test('a client is refused when no endpoint becomes free in time', async (t) => {
    const { endpoint } = await TcpBackend.echo(t);
    const { rig, name, port } = await room(t, makeRig, {
      ...{ endpoints: [endpoint], maxConnections: 1, terms: { forEndpointsMs: 0, whileFullMs: 300 } },
    });
    const first = await client(port, 'a');
    await first.hasReceived(1);
    assert.equal(await refusal(port, 'b'), 'ECONNRESET');
    assert.deepEqual(await rig.reported('clientRefused', 1), [{ name, client: '127.0.0.1', reason: 'wait-timeout' }]);
    first.end();
  });

  test('a client with affinity waits for its own endpoint, others pass it by', async (t) => {
    const [one, two] = [await noting(t), await noting(t)];
    const affinity = { type: 'ClientIP', timeoutSeconds: 600 } as const;
    const both = { endpoints: [one.endpoint, two.endpoint], affinity, maxConnections: 1 };
    const { port, waiting } = await room(t, makeRig, both);
    const mine = await client(port, 'a', NODE_ADDRESSES[0]);
    await mine.hasReceived(2);
    const again = await client(port, 'b', NODE_ADDRESSES[0]);
    await waiting(1);
    const other = await client(port, 'c', NODE_ADDRESSES[1]);
    await other.hasReceived(2);
    assert.equal(again.receivedBytes, 0);
    mine.reset();
    await again.hasReceived(2);
    assert.deepEqual(
      [one.asked, two.asked].toSorted((a, b) => b.length - a.length),
      [['a', 'b'], ['c']],
    );
    for (const each of [again, other]) each.end();
  });

  test('those who wait are listed, and the connection log says how long they have waited', async (t) => {
    const { rig, name, port, serve, waiting } = await room(t, makeRig);
    const entries: ConnectionEntry[] = [];
    rig.plane.logConnections({ ended: (some) => entries.push(...some), lost: () => {} });
    const one = await client(port, 'a');
    await waiting(1);
    const connection = await waitFor('it to be listed', async () => (await listed(rig.plane, name))[0]);
    const { client: shown, endpoint, state, expiresMs = 0 }: OpenConnection = connection;
    assert.deepEqual([shown.port, endpoint, state], [one.socket.localPort, undefined, 'waiting']);
    assert.ok(expiresMs > 30_000 && expiresMs <= 60_000, `${expiresMs} ms`);
    await sleep(SETTLED_MS);
    await serve([(await TcpBackend.echo(t)).endpoint]);
    await one.hasReceived(1);
    one.end();
    await one.finished();
    const entry = await waitFor('its entry', () => entries[0]);
    assert.equal(entry.ending, 'client-end');
    assert.ok((entry.waitedMs ?? 0) >= SETTLED_MS && (entry.waitedMs ?? 0) <= entry.durationMs, `${entry.waitedMs} ms`);
  });

  test('when its Service port closes, nobody waits any more', async (t) => {
    for (const protocol of ['TCP', 'UDP'] as const) {
      const { rig, name, port, waiting } = await room(t, makeRig, { protocol });
      if (protocol === 'UDP') (await UdpClient.connect(t, port)).send('a');
      const one = protocol === 'TCP' ? await client(port) : undefined;
      await waiting(1);
      await rig.plane.close(name);
      if (one !== undefined) assert.equal(await one.finished(), 'ECONNRESET');
    }
  });

  test('datagrams wait for an endpoint with their client, and arrive in order', async (t) => {
    const { rig, name, port, serve, waiting } = await room(t, makeRig, { protocol: 'UDP' });
    const [one, two] = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
    for (const text of ['a', 'b', 'c']) await one.delivered(text);
    await waiting(1);
    await two.delivered('d');
    await waiting(2);
    const states = (await listed(rig.plane, name)).map(({ state }) => state);
    assert.deepEqual(states, ['waiting', 'waiting']);
    const echo = await UdpBackend.echo(t);
    await serve([echo.endpoint]);
    await waitFor('the answers', () => one.texts.length === 3 && two.texts.length === 1);
    assert.deepEqual(one.texts, ['a', 'b', 'c']);
    assert.deepEqual(echo.texts, ['a', 'b', 'c', 'd']);
    assert.equal(await one.ask('e'), 'e');
    assert.equal(echo.flows.length, 2);
    const { waiting: now, noEndpoints, limited, receivedBytes } = rig.counters(name);
    assert.deepEqual([now, noEndpoints, limited, receivedBytes], [0, 0, 0, 5]);
  });

  test('a client of UDP is told when its time is over, and only so many wait', async (t) => {
    const terms = { forEndpointsMs: 500, max: 1 };
    const { rig, name, port, waiting } = await room(t, makeRig, { protocol: 'UDP', terms });
    const [one, two] = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
    await one.delivered('a');
    await waiting(1);
    await two.delivered('b');
    await waitFor('both to be refused', () => one.refusals > 0 && two.refusals > 0);
    const reasons = (await rig.reported('clientRefused', 2)).map(({ reason }) => reason);
    assert.deepEqual(reasons, ['wait-full', 'wait-timeout']);
    assert.equal(rig.counters(name).waiting, 0);
  });

  test('a question that every endpoint has refused waits for the next endpoint', async (t) => {
    const gone = await UdpBackend.start(t);
    await gone.stop();
    const { port, serve, waiting } = await room(t, makeRig, { protocol: 'UDP', endpoints: [gone.endpoint] });
    const one = await UdpClient.connect(t, port);
    one.send('a');
    await waiting(1);
    const echo = await UdpBackend.echo(t);
    await serve([echo.endpoint]);
    await waitFor('the answer', () => one.texts.length === 1);
    assert.equal(one.refusals, 0);
  });

  test('flows count against what an endpoint may have', async (t) => {
    const echo = await UdpBackend.echo(t);
    const { port, waiting } = await room(t, makeRig, {
      ...{ protocol: 'UDP', endpoints: [echo.endpoint], maxConnections: 1, udpTimeoutMs: 300 },
      options: { udpFirstReplyTimeoutMs: 300 },
    });
    const [one, two] = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
    assert.equal(await one.ask('a'), 'a');
    two.send('b');
    await waiting(1);
    // The flow of the first ends after the Service's own time.
    await waitFor('the answer', () => two.texts.length === 1);
  });

  test('a connection that has reached its age is ended both ways', async (t) => {
    const server = await TcpBackend.start(t, (peer) => peer.send('hello'));
    const { rig, name, port, serve, waiting } = await room(t, makeRig, { maxConnectionAgeMs: 500 });
    const entries: ConnectionEntry[] = [];
    rig.plane.logConnections({ ended: (some) => entries.push(...some), lost: () => {} });
    const one = await client(port, 'hi');
    await waiting(1);
    // It does not count how long it has waited.
    await sleep(600);
    const began = performance.now();
    await serve([server.endpoint]);
    await one.hasReceived(5);
    const [peer] = server.peers;
    assert.deepEqual([await one.finished(), await peer?.finished()], ['end', 'end']);
    // A tenth earlier at most; a busy thread's clock is some time late.
    const lastedMs = performance.now() - began;
    assert.ok(lastedMs >= 400, `${lastedMs} ms`);
    one.end();
    peer?.end();
    const entry = await waitFor('its entry', () => entries[0]);
    assert.equal(entry.ending, 'proxy-age');
    assert.equal(rig.counters(name).resets, 0);
  });

  test('whoever goes on nevertheless is reset, at the latest after the time of half-open connections', async (t) => {
    const server = await TcpBackend.start(t);
    const { rig, name, port } = await room(t, makeRig, {
      ...{ endpoints: [server.endpoint], maxConnectionAgeMs: 300, options: { tcpHalfOpenTimeoutMs: 300 } },
    });
    const [idle, talking] = [await client(port, 'a'), await client(port, 'b')];
    await finished([idle, talking]);
    await waitFor('a reset', () => {
      talking.send('.');
      return talking.error !== undefined;
    });
    await waitFor('both to be over', () => rig.counters(name).active === 0);
    idle.send('.');
    await waitFor('another reset', () => idle.error !== undefined);
  });

  test("a Service has a drain timeout of its own, in place of the node's", async (t) => {
    const { endpoint } = await TcpBackend.echo(t);
    const other = endpointAt(BLACK_HOLE, 80);
    const { port, serve } = await room(t, makeRig, { endpoints: [endpoint], drainTimeoutMs: 200 });
    const one = await client(port, 'a');
    await one.hasReceived(1);
    await serve([other]);
    assert.equal(await one.finished(), 'ECONNRESET');
  });
}
