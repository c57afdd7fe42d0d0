import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, test } from 'node:test';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { fastRig, openPort } from './rig.ts';

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up', 'mtu', '600']));

/** 500 bytes fit into a packet of this link, and go in runs; 1200 do not, and the kernel refuses runs of them. */
for (const size of [500, 1200]) {
  test(`a burst of datagrams of ${size} bytes over a link with packets of 600 goes there and back whole and in order`, async (t) => {
    const rig = await fastRig(t);
    const backend = await UdpBackend.echo(t);
    const port = await openPort(rig, 'a/udp', [backend.endpoint], 'UDP');
    const clients = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
    const bursts = clients.map((_, who) =>
      Array.from({ length: 3 * 40 }, (_unused, i) => `${who} ${i} `.padEnd(i % 40 === 39 ? size - 100 : size, '.')),
    );
    for (let round = 0; round < 3; round++) {
      clients.forEach((client, who) => {
        for (const text of bursts[who]?.slice(round * 40, (round + 1) * 40) ?? []) client.send(text);
      });
      await waitFor('the answers', () => clients.every(({ received }) => received.length === (round + 1) * 40));
    }
    clients.forEach((client, who) => {
      assert.deepEqual(client.texts, bursts[who]);
    });
    const { counters } = rig.stats('a/udp');
    assert.equal(counters.receivedBytes, counters.sentBytes);
    assert.equal(counters.receivedBytes, bursts.flat().join('').length);
    assert.deepEqual([counters.connections, counters.limited], [2, 0]);
    assert.deepEqual(rig.events, []);
  });
}
