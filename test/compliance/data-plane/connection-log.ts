import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { ConnectionEntry, ConnectionLogSink, Ending } from '../../../src/model/connection-log.ts';
import type { DataPlaneOptions, DialFailure } from '../../../src/model/data-plane.ts';
import { type Endpoint, endpointName } from '../../../src/model/endpoint.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, refusal, refusingEndpoint, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, clientAt, endpointAt, type Rig, type RigFactory } from './harness.ts';
import { BLACK_HOLE, drop, UNREACHABLE } from './network.ts';

/** Bounds how many connections of one test wait for each other. */
const AT_ONCE = 16;

class Entries implements ConnectionLogSink {
  readonly all: ConnectionEntry[] = [];
  lostCount = 0;

  ended(entries: readonly ConnectionEntry[]): void {
    this.all.push(...entries);
  }

  lost(count: number): void {
    this.lostCount += count;
  }

  async has(count: number): Promise<readonly ConnectionEntry[]> {
    await waitFor(`${count} entries`, () => this.all.length >= count);
    assert.deepEqual([this.all.length, this.lostCount], [count, 0]);
    return this.all;
  }
}

function localName({ socket }: TcpPeer): Endpoint {
  return clientAt(socket.localAddress ?? '', socket.localPort ?? 0);
}

function sumOf(entries: readonly ConnectionEntry[], of: (entry: ConnectionEntry) => number): number {
  return entries.reduce((sum, entry) => sum + of(entry), 0);
}

function failuresIn(entries: readonly ConnectionEntry[], reason: DialFailure): number {
  return sumOf(entries, ({ tries: { failed, moreFailed } }) => {
    return failed.filter((each) => each.reason === reason).length + (moreFailed?.[reason] ?? 0);
  });
}

/** The entries say in sum what the counters say. */
function assertSums(entries: readonly ConnectionEntry[], rig: Rig, name: Parameters<Rig['counters']>[0]): void {
  const counters = rig.counters(name);
  const begun = entries.filter(({ protocol, ending }) => protocol === 'TCP' || !ending.startsWith('refused-'));
  assert.deepEqual(
    {
      connections: begun.length,
      receivedBytes: sumOf(entries, ({ receivedBytes }) => receivedBytes),
      sentBytes: sumOf(entries, ({ sentBytes }) => sentBytes),
      retries: sumOf(entries, ({ tries }) => tries.retries),
      failedRefused: failuresIn(entries, 'refused'),
      failedTimeout: failuresIn(entries, 'timeout'),
      failedUnreachable: failuresIn(entries, 'unreachable'),
      failedOther: failuresIn(entries, 'other'),
      noEndpoints: entries.filter(({ ending }) => ending === 'refused-no-endpoints').length,
      exhausted: entries.filter(({ ending }) => ending === 'refused-exhausted').length,
    },
    {
      connections: counters.connections,
      receivedBytes: counters.receivedBytes,
      sentBytes: counters.sentBytes,
      retries: counters.retries,
      failedRefused: counters.failedRefused,
      failedTimeout: counters.failedTimeout,
      failedUnreachable: counters.failedUnreachable,
      failedOther: counters.failedOther,
      noEndpoints: counters.noEndpoints,
      exhausted: counters.exhausted,
    },
  );
}

export function connectionLogTests(makeRig: RigFactory): void {
  async function logged(t: TestContext, options?: Partial<DataPlaneOptions>) {
    const rig = await makeRig(t, options);
    const entries = new Entries();
    rig.plane.logConnections(entries);
    return { rig, entries };
  }

  /** One open connection, with four bytes to the endpoint and seven back. */
  async function connected(t: TestContext, options?: Partial<DataPlaneOptions>) {
    const { rig, entries } = await logged(t, options);
    const server = await TcpBackend.start(t);
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const client = await connectTcp(port);
    client.send('four');
    const backend = await waitFor('the backend to accept', () => server.peers[0]);
    await backend.hasReceived(4);
    backend.send('seven b');
    await client.hasReceived(7);
    return { rig, entries, server, name, client, backend };
  }

  type Connected = Awaited<ReturnType<typeof connected>>;

  const ends: readonly (readonly [Ending, Partial<DataPlaneOptions>, (pair: Connected) => unknown, title?: string])[] =
    [
      [
        'client-end',
        {},
        async ({ client, backend }) => {
          client.end();
          await backend.finished();
          backend.end();
        },
      ],
      [
        'backend-end',
        {},
        async ({ client, backend }) => {
          backend.end();
          await client.finished();
          client.end();
        },
      ],
      ['client-reset', {}, ({ client }) => client.reset()],
      ['backend-reset', {}, ({ backend }) => backend.reset()],
      [
        'backend-reset',
        {},
        async ({ client, backend }) => {
          client.end();
          await backend.finished();
          backend.reset();
        },
        'after an end of the client',
      ],
      ['proxy-idle', { tcpHalfOpenTimeoutMs: 300 }, ({ client }) => client.end()],
      ['proxy-drain', { endpointDrainTimeoutMs: 100 }, ({ rig, name }) => rig.update(name, backends([]))],
      ['proxy-shutdown', {}, ({ rig }) => rig.plane.shutdown()],
    ];
  for (const [ending, options, finish, title] of ends) {
    test(`the entry of a TCP connection: ${ending}${title === undefined ? '' : `, ${title}`}`, async (t) => {
      const beforeMs = Date.now();
      const pair = await connected(t, options);
      const { rig, entries, server, name, client } = pair;
      const local = localName(client);
      assert.deepEqual(entries.all, []);
      await finish(pair);
      const [{ endedAt, durationMs, ...entry } = assert.fail()] = await entries.has(1);
      assert.deepEqual(entry, {
        name,
        protocol: 'TCP',
        client: local,
        backend: endpointName(server.endpoint),
        ending,
        receivedBytes: 4,
        sentBytes: 7,
        tries: { retries: 0, failed: [] },
      });
      assert.ok(durationMs > 0 && endedAt - durationMs >= beforeMs - 1, `${durationMs} ms, from ${beforeMs}`);
      assert.ok(endedAt <= Date.now() + 1);
      if (ending !== 'proxy-shutdown') assertSums(entries.all, rig, name);
    });
  }

  test('the entry of a connection whose endpoint died with its node', async (t) => {
    const { entries, client, server } = await connected(t, { tcpUserTimeoutMs: 500 });
    drop(t, 'INPUT', '-p', 'tcp', '--dport', String(server.endpoint.port));
    client.send('unheard');
    const [entry] = await entries.has(1);
    assert.deepEqual([entry?.ending, entry?.receivedBytes], ['proxy-dead', 11]);
  });

  test('the entry of a client that no endpoint answered has every try, or how many there were', async (t) => {
    const { rig, entries } = await logged(t);
    const none = await rig.open('TCP', []);
    await refusal(none.port);
    await entries.has(1);
    const refusing = refusingEndpoint(t);
    const some = await rig.open('TCP', [refusing, endpointAt(UNREACHABLE, 80)]);
    await refusal(some.port);
    await entries.has(2);
    // Nothing listens there: the port is bound at another address.
    const dead = Array.from({ length: 20 }, (_, i) => endpointAt(`127.9.9.${i + 1}`, refusing.port));
    const many = await rig.open('TCP', dead);
    await refusal(many.port);
    const [first, second, third] = await entries.has(3);
    assert.deepEqual([first?.ending, first?.backend], ['refused-no-endpoints', undefined]);
    assert.deepEqual([second?.ending, second?.backend], ['refused-exhausted', undefined]);
    // A pick may come back to an endpoint.
    const tries = new Set(second?.tries.failed.map(({ backend, reason }) => `${backend} ${reason}`));
    assert.deepEqual(tries, new Set([`${UNREACHABLE}:80 unreachable`, `${endpointName(refusing)} refused`]));
    assert.deepEqual([third?.tries.failed.length, Object.keys(third?.tries.moreFailed ?? {})], [16, ['refused']]);
    for (const [entry, { name }] of [
      [first, none],
      [second, some],
      [third, many],
    ] as const) {
      assertSums(entry === undefined ? [] : [entry], rig, name);
    }
  });

  test('the entry of a client that left while its endpoint was silent', async (t) => {
    const { rig, entries } = await logged(t);
    const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80)]);
    const client = await connectTcp(port);
    await waitFor('the proxy to accept', () => rig.counters(name).active === 1);
    const local = localName(client);
    client.reset();
    const [entry] = await entries.has(1);
    assert.deepEqual([entry?.ending, entry?.client, entry?.backend], ['client-reset', local, undefined]);
    assertSums(entries.all, rig, name);
  });

  test('the sums of many entries are the counters, with endpoints that fail among them', async (t) => {
    const { rig, entries } = await logged(t);
    const server = await TcpBackend.echo(t);
    const endpoints = [server.endpoint, refusingEndpoint(t), endpointAt(UNREACHABLE, 80)];
    const { name, port } = await rig.open('TCP', endpoints);
    const count = 300;
    let left = count;
    const clients: string[] = [];
    const one = async (): Promise<void> => {
      while (left > 0) {
        const number = left--;
        const client = await connectTcp(port);
        clients.push(`127.0.0.1:${client.socket.localPort}`);
        const length = 1 + (number % 3) * 40_000;
        client.send(Buffer.alloc(length, 'x'));
        await client.hasReceived(length);
        if (number % 2 === 0) client.end();
        else client.reset();
        await client.finished();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, one));
    await waitFor('all to end', () => rig.counters(name).active === 0);
    await entries.has(count);
    assert.ok(rig.counters(name).retries > 0);
    assertSums(entries.all, rig, name);
    // One has the port of another that was reset.
    assert.deepEqual(entries.all.map(({ client }) => client && endpointName(client)).sort(), clients.sort());
  });

  test('a connection that began before anybody wanted entries is told whole', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.echo(t);
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const [first, second, third] = [await connectTcp(port), await connectTcp(port), await connectTcp(port)];
    for (const client of [first, second, third]) {
      client.send('early');
      await client.hasReceived(5);
    }
    first.end();
    await first.finished();
    await waitFor('the first to end', () => rig.counters(name).active === 2);
    const entries = new Entries();
    rig.plane.logConnections(entries);
    second.end('late');
    await second.finished();
    const [entry] = await entries.has(1);
    assert.deepEqual([entry?.receivedBytes, entry?.sentBytes], [9, 9]);
    rig.plane.logConnections(undefined);
    third.end();
    await third.finished();
    await waitFor('the last to end', () => rig.counters(name).active === 0);
    await entries.has(1);
  });

  test('the connections of a closed TCP port keep its name', async (t) => {
    const { rig, entries, name, client, backend } = await connected(t);
    await rig.plane.close(name);
    client.end();
    await backend.finished();
    backend.end();
    const [entry] = await entries.has(1);
    assert.deepEqual([entry?.name, entry?.ending, entry?.receivedBytes], [name, 'client-end', 4]);
  });

  test('entries of UDP flows: silence, an endpoint that refuses or leaves, a port that closes', async (t) => {
    const { rig, entries } = await logged(t, { udpIdleTimeoutMs: 300 });
    const backend = await UdpBackend.named(t, 'seven b');
    const silent = await rig.open('UDP', [backend.endpoint]);
    const client = await UdpClient.connect(t, silent.port);
    await client.ask('four');
    const [idle] = await entries.has(1);
    const { endedAt: _, durationMs = 0, ...rest } = idle ?? assert.fail();
    assert.deepEqual(rest, {
      name: silent.name,
      protocol: 'UDP',
      client: clientAt('127.0.0.1', client.socket.address().port),
      backend: endpointName(backend.endpoint),
      ending: 'proxy-idle',
      receivedBytes: 4,
      sentBytes: 7,
      tries: { retries: 0, failed: [] },
    });
    assert.ok(durationMs >= 295, `${durationMs} ms`);
    assertSums(entries.all, rig, silent.name);

    const gone = await UdpBackend.start(t);
    await gone.stop();
    const refusing = gone.endpoint;
    const refused = await rig.open('UDP', [refusing]);
    (await UdpClient.connect(t, refused.port)).send('lost');
    // Each flow that asked in vain, and the client that nobody is left for.
    const ofRefused = () => entries.all.slice(1);
    await waitFor('the last', () => ofRefused().some(({ ending }) => ending === 'refused-exhausted'));
    const [error] = ofRefused();
    assert.deepEqual(error?.tries.failed, [{ backend: endpointName(refusing), reason: 'refused' }]);
    assert.deepEqual([error?.ending, error?.receivedBytes], ['backend-error', 4]);
    assertSums(ofRefused(), rig, refused.name);
  });

  test('entries of UDP flows that the proxy ends', async (t) => {
    const { rig, entries } = await logged(t);
    const backend = await UdpBackend.echo(t);
    const [drained, closed] = [await rig.open('UDP', [backend.endpoint]), await rig.open('UDP', [backend.endpoint])];
    for (const { port } of [drained, closed]) await (await UdpClient.connect(t, port)).ask('?');
    await rig.update(drained.name, backends([]));
    await entries.has(1);
    await rig.plane.close(closed.name);
    const endings = (await entries.has(2)).map(({ name, ending }) => [name, ending]);
    assert.deepEqual(endings, [
      [drained.name, 'proxy-drain'],
      [closed.name, 'proxy-removed'],
    ]);
  });

  test('entries of datagrams that got no flow', async (t) => {
    const { rig, entries } = await logged(t, { udpMaxFlowsPerService: 1 });
    const backend = await UdpBackend.echo(t);
    const [limited, empty] = [await rig.open('UDP', [backend.endpoint]), await rig.open('UDP', [])];
    await (await UdpClient.connect(t, limited.port)).ask('?');
    const second = await UdpClient.connect(t, limited.port);
    second.send('too many');
    await entries.has(1);
    (await UdpClient.connect(t, empty.port)).send('?');
    const [limit, none] = await entries.has(2);
    const client = clientAt('127.0.0.1', second.socket.address().port);
    assert.deepEqual([limit?.name, limit?.ending, limit?.client], [limited.name, 'refused-limit', client]);
    assert.deepEqual([none?.name, none?.ending, none?.backend], [empty.name, 'refused-no-endpoints', undefined]);
  });
}
