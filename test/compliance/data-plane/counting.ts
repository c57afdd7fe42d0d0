import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COUNTERS } from '../../../src/contracts/data-plane.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import type { RigFactory } from './harness.ts';

const NOTHING = Object.fromEntries(COUNTERS.map((counter) => [counter, 0]));

export function countingTests(makeRig: RigFactory): void {
  test('a fresh Service port has every counter at zero', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await rig.open('TCP', []);
    assert.deepEqual([...rig.plane.stats()], [{ name, protocol: 'TCP', localPort: port, counters: NOTHING }]);
  });

  test('TCP connections and bytes are counted, each way', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t, (peer) => peer.send('four'));
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const clients = [await connectTcp(port), await connectTcp(port)];
    for (const client of clients) client.send('seven b');
    await waitFor('all to arrive', () => server.peers.every(({ receivedBytes }) => receivedBytes === 7));
    await waitFor('all to arrive', () => clients.every(({ receivedBytes }) => receivedBytes === 4));
    const counted = { ...NOTHING, connections: 2, active: 2, receivedBytes: 14, sentBytes: 8 };
    assert.deepEqual({ ...rig.counters(name) }, counted);
    for (const peer of [...clients, ...server.peers]) peer.end();
    await waitFor('both to be over', () => rig.counters(name).active === 0);
    assert.deepEqual({ ...rig.counters(name) }, { ...counted, active: 0 });
  });

  test('UDP flows and bytes are counted, each way', async (t) => {
    const rig = await makeRig(t, { udpIdleTimeoutMs: 300 });
    const { name, port } = await rig.open('UDP', [(await UdpBackend.named(t, 'four')).endpoint]);
    for (let i = 0; i < 2; i++) await (await UdpClient.connect(t, port)).ask('seven b');
    const counted = { ...NOTHING, connections: 2, active: 2, receivedBytes: 14, sentBytes: 8 };
    assert.deepEqual({ ...rig.counters(name) }, counted);
    await waitFor('both to be over', () => rig.counters(name).active === 0);
    assert.deepEqual({ ...rig.counters(name) }, { ...counted, active: 0 });
  });

  test('each Service port has its own counters, and begins anew when it is opened again', async (t) => {
    const rig = await makeRig(t);
    const [one, two] = [await rig.open('TCP', []), await rig.open('TCP', [])];
    await (await connectTcp(one.port)).finished();
    assert.deepEqual([rig.counters(one.name).noEndpoints, rig.counters(two.name).noEndpoints], [1, 0]);
    await rig.plane.close(one.name);
    assert.deepEqual(
      [...rig.plane.stats()].map(({ name }) => name),
      [two.name],
    );
    const backends = { endpoints: [], affinity: { type: 'None' } } as const;
    await rig.plane.open({ name: one.name, protocol: 'TCP', address: '0.0.0.0', port: 0 }, backends);
    assert.equal(rig.counters(one.name).noEndpoints, 0);
  });

  test('what stats() gave does not change afterwards', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await rig.open('TCP', []);
    const before = rig.counters(name);
    await (await connectTcp(port)).finished();
    assert.equal(before.noEndpoints, 0);
    assert.equal(rig.counters(name).noEndpoints, 1);
  });
}
