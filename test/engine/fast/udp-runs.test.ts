import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, test } from 'node:test';
import { openListenSocket } from '../../../src/engine/fast/listen-socket.ts';
import { DatagramInbox } from '../../../src/sys/datagram-inbox.ts';
import { close, waitReadable } from '../../../src/sys/descriptor.ts';
import { Memory } from '../../../src/sys/memory.ts';
import { AF_INET, connect, SOCK_DGRAM, send, socket } from '../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../src/sys/socket-address.ts';
import { must } from '../../../src/sys/sys-error.ts';
import { endpointsBehindSmallMtu } from '../../compliance/data-plane/network.ts';
import { PATIENCE_MS, waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { fastRig, openPort } from './rig.ts';
import { engineRig } from './worker/engine-rig.ts';

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

test('datagrams that are too big for a link on the way arrive without a word of ICMP: a router may fragment them (IPv4)', async (t) => {
  const { IPv4 } = await endpointsBehindSmallMtu(t, { isSilent: true });
  const rig = await fastRig(t);
  const port = await openPort(rig, 'a/udp', [IPv4[0]], 'UDP');
  const client = await UdpClient.connect(t, port);
  await client.ask('x'.repeat(1400));
  for (let i = 0; i < 40; i++) client.send('x'.repeat(1400));
  await waitFor('the answers', () => client.received.length === 41);
  assert.deepEqual([...new Set(client.texts)], ['7001 1400']);
  assert.deepEqual(rig.events, []);
});

test('an error that ICMP has left at a flow of a predecessor does not end the flow', async (t) => {
  const [endpoint] = (await endpointsBehindSmallMtu(t)).IPv4;
  const { engine, reports, open } = engineRig(t);
  const listener = openListenSocket(listenSpec({ name: 'a/udp', protocol: 'UDP', address: '127.0.0.1', port: 0 }));
  t.after(() => close(listener.fd));
  const client = await UdpClient.connect(t, listener.localPort);
  await client.delivered('for the way back');
  const inbox = new DatagramInbox(1);
  assert.equal(inbox.receive(listener.fd), 1);
  const path = inbox.replyPath(0);

  const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
  must('connect', connect(fd, encodeSocketAddress(endpoint.address, endpoint.port)));
  const big = new Memory(1400);
  must('send', send(fd, big, 0, big.length));
  assert.equal(waitReadable(fd, PATIENCE_MS), 1, 'the error has come');
  const bytes = (words: Int32Array) => new Uint8Array(words.slice().buffer);
  const flow = {
    kind: 'flow' as const,
    port: 1,
    fd,
    endpoint,
    hasReplied: false,
    hasRetired: false,
    beganAt: 0,
    receivedBytes: 0,
    sentBytes: 0,
    name: bytes(path.name),
    control: bytes(path.control),
  };
  const counters = open(1, listener.fd, { protocol: 'UDP', endpoints: [endpoint], flows: [flow] });
  await client.delivered('?');
  await waitFor('the answer', () => {
    engine.turn(10);
    return client.received.length === 1;
  });
  assert.deepEqual(client.texts, ['7001 1']);
  assert.deepEqual(
    reports.filter(({ kind }) => kind === 'dialFailed'),
    [],
  );
  assert.equal(counters.read().connections, 0, 'no other flow was begun');
});
