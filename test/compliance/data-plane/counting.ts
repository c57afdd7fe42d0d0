import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CONNECT_TIMES, COUNTERS, type Counters, type ListenerStats } from '../../../src/model/data-plane.ts';
import { endpointName, type NamedEndpoint } from '../../../src/model/endpoint.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { connectTcp, refusal, refusingEndpoint, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, type RigFactory } from './harness.ts';

const NOTHING = Object.fromEntries(COUNTERS.map((counter) => [counter, 0])) as Counters;

/** How long dials take is not up to a test. */
function connectsByTime(counters: Omit<Counters, 'connectMs'>): Partial<Counters> {
  return Object.fromEntries(CONNECT_TIMES.map((counter) => [counter, counters[counter]]));
}

function sumOf(counters: Partial<Counters>): number {
  return Object.values(counters).reduce((sum, count) => sum + count, 0);
}

function countersOf(all: ListenerStats['endpoints'], wanted: NamedEndpoint): Readonly<Counters> | undefined {
  return all?.find(({ endpoint }) => endpointName(endpoint) === endpointName(wanted))?.counters;
}

export function countingTests(makeRig: RigFactory): void {
  test('a fresh Service port has every counter at zero', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await rig.open('TCP', []);
    const [{ endpoints, worker: _, ...stats } = {}, ...more] = rig.plane.stats();
    assert.deepEqual(stats, { id: name, name, family: 'IPv4', protocol: 'TCP', localPort: port, counters: NOTHING });
    assert.deepEqual([endpoints ?? [], more], [[], []]);
  });

  test('TCP connections and bytes are counted, each way', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t, (peer) => peer.send('four'));
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const clients = [await connectTcp(port), await connectTcp(port)];
    for (const client of clients) client.send('seven b');
    await waitFor(
      'all to arrive',
      () => server.peers.length === 2 && server.peers.every(({ receivedBytes }) => receivedBytes === 7),
    );
    await waitFor('all to arrive', () => clients.every(({ receivedBytes }) => receivedBytes === 4));
    // On its way between two workers, a connection counts twice.
    await waitFor('each to count once', () => rig.counters(name).active === 2);
    const { connectMs, ...counters } = rig.counters(name);
    const byTime = connectsByTime(counters);
    assert.equal(sumOf(byTime), 2);
    assert.ok(connectMs > 0 && connectMs < 60_000, `${connectMs} ms`);
    const counted = {
      ...NOTHING,
      ...byTime,
      connections: 2,
      active: 2,
      receivedBytes: 14,
      sentBytes: 8,
      connects: 2,
      connectMs,
    };
    assert.deepEqual({ ...counters, connectMs }, counted);
    for (const peer of [...clients, ...server.peers]) peer.end();
    await waitFor('both to be over', () => rig.counters(name).active === 0);
    assert.deepEqual({ ...rig.counters(name) }, { ...counted, active: 0 });
  });

  test('an engine that counts per endpoint has each endpoint’s share', async (t) => {
    const rig = await makeRig(t);
    const [alive, dead] = [await TcpBackend.start(t, (peer) => peer.send('four')), refusingEndpoint(t)];
    const { name, port } = await rig.open('TCP', [alive.endpoint, dead]);
    for (let i = 0; i < 2; i++) {
      const client = await connectTcp(port);
      client.send('seven b');
      await waitFor('all to arrive', () => client.receivedBytes === 4 && alive.peers[i]?.receivedBytes === 7);
    }
    const [{ endpoints } = {}] = rig.plane.stats();
    if (endpoints === undefined) return;
    const of = (wanted: NamedEndpoint) => countersOf(endpoints, wanted);
    assert.equal(endpoints.length, 2);
    const connectMs = of(alive.endpoint)?.connectMs ?? -1;
    const byTime = connectsByTime(of(alive.endpoint) ?? NOTHING);
    assert.equal(sumOf(byTime), 2);
    const share = { ...byTime, connections: 2, active: 2, receivedBytes: 14, sentBytes: 8, connects: 2, connectMs };
    const { failedRefused } = rig.counters(name);
    assert.ok(failedRefused > 0);
    assert.deepEqual(of(dead), { ...NOTHING, failedRefused });
    assert.deepEqual(of(alive.endpoint), { ...NOTHING, ...share, retries: failedRefused });
    rig.plane.update(name, backends([alive.endpoint]));
    await waitFor('the dead one to go', () => [...rig.plane.stats()][0]?.endpoints?.length === 1);
    assert.equal([...rig.plane.stats()][0]?.endpoints?.[0]?.counters.receivedBytes, 14);
  });

  test('an engine that counts per endpoint counts for a draining one until it has gone', async (t) => {
    const rig = await makeRig(t);
    const [draining, other] = [await TcpBackend.echo(t), await TcpBackend.echo(t)];
    const { name, port } = await rig.open('TCP', [draining.endpoint]);
    const client = await connectTcp(port);
    client.send('one ');
    await client.hasReceived(4);
    if (rig.plane.statsOf(name)?.endpoints === undefined) return;
    const of = (wanted: NamedEndpoint) => countersOf(rig.plane.statsOf(name)?.endpoints, wanted);
    const activeAndBytes = (wanted: NamedEndpoint) => {
      const { connections, active, receivedBytes } = of(wanted) ?? {};
      return [connections, active, receivedBytes];
    };

    rig.plane.update(name, { ...backends([other.endpoint]), draining: [{ ...draining.endpoint }] });
    await waitFor('the other one to come', () => of(other.endpoint) !== undefined);
    client.send('two ');
    await client.hasReceived(8);
    await waitFor('it to count once', () => of(draining.endpoint)?.active === 1);
    assert.deepEqual(activeAndBytes(draining.endpoint), [1, 1, 8]);

    rig.plane.update(name, backends([{ ...draining.endpoint }]));
    await waitFor('the other one to go', () => of(other.endpoint) === undefined);
    const second = await connectTcp(port);
    second.send('again');
    await second.hasReceived(5);
    await waitFor('each to count once', () => of(draining.endpoint)?.active === 2);
    assert.deepEqual(activeAndBytes(draining.endpoint), [2, 2, 13], 'back in the set it counts in the same place');

    const [unused, third] = [refusingEndpoint(t), { ...draining.endpoint }];
    rig.plane.update(name, { ...backends([]), draining: [unused, third] });
    await waitFor('it to drain again', () => of(unused) !== undefined);
    assert.deepEqual(of(unused), NOTHING);
    for (const peer of [client, second]) peer.end();
    for (const peer of [client, second]) assert.equal(await peer.finished(), 'end');
    await waitFor('its connections to be over', () => of(draining.endpoint)?.active === 0);
    assert.deepEqual(activeAndBytes(draining.endpoint), [2, 0, 13]);

    rig.plane.update(name, backends([]));
    await waitFor('both to go', () => rig.plane.statsOf(name)?.endpoints?.length === 0);
  });

  test('UDP flows and bytes are counted, each way', async (t) => {
    const rig = await makeRig(t, { udpIdleTimeoutMs: 3000 });
    const { name, port } = await rig.open('UDP', [(await UdpBackend.named(t, 'four')).endpoint]);
    for (let i = 0; i < 2; i++) await (await UdpClient.connect(t, port)).ask('seven b');
    const both = () => {
      const { counters, endpoints } = rig.plane.statsOf(name) ?? {};
      return [counters, endpoints?.[0]?.counters ?? counters];
    };
    const counted = { ...NOTHING, connections: 2, active: 2, receivedBytes: 14, sentBytes: 8 };
    assert.deepEqual(both(), [counted, counted], 'of the Service port, and of its only endpoint');
    await waitFor('both to be over', () => both().every((counters) => counters?.active === 0));
    const over = { ...counted, active: 0 };
    assert.deepEqual(both(), [over, over]);
  });

  test('each Service port has its own counters, which start at zero when it is opened again', async (t) => {
    const rig = await makeRig(t);
    const [one, two] = [await rig.open('TCP', []), await rig.open('TCP', [])];
    const before = rig.plane.statsOf(one.name);
    await refusal(one.port);
    assert.deepEqual([rig.counters(one.name).noEndpoints, rig.counters(two.name).noEndpoints], [1, 0]);
    assert.deepEqual(before?.counters, NOTHING, 'stats() gives a copy');
    await rig.plane.close(one.name);
    const names = [...rig.plane.stats()].map(({ name }) => name);
    assert.deepEqual(names, [two.name]);
    await rig.plane.open(listenSpec({ name: one.name, protocol: 'TCP', address: '0.0.0.0', port: 0 }), backends([]));
    assert.equal(rig.counters(one.name).noEndpoints, 0);
  });
}
