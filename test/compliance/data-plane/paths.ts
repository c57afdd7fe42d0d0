import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { PatternReceiver, PatternSender } from '../../support/pattern.ts';
import { connectSocket, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import type { RigFactory } from './harness.ts';
import { drop, endpointsBehindSmallMtu } from './network.ts';

const FORGED = 600;
const STREAM = Buffer.alloc(300_000, 's');
const BIG = 'x'.repeat(1400);

const every = (n: number) => ['-m', 'statistic', '--mode', 'nth', '--every', String(n), '--packet', String(n - 1)];

/** More than the time between two probes of keepalive, 15 s. */
const FORGOTTEN_AFTER_S = 20;

/** Until the end of the test. */
function setSysctl(t: TestContext, path: string, value: number): void {
  const file = `/proc/sys/net/${path}`;
  const usual = readFileSync(file, 'utf8');
  writeFileSync(file, String(value));
  t.after(() => writeFileSync(file, usual));
}

/** What goes wrong between this node and an endpoint or a client. */
export function pathTests(makeRig: RigFactory): void {
  test('a stream to an endpoint behind a small MTU arrives whole', async (t) => {
    const behind = await endpointsBehindSmallMtu(t);
    const rig = await makeRig(t);
    for (const [endpoint] of [behind.IPv4, behind.IPv6]) {
      const client = await connectTcp((await rig.open('TCP', [endpoint])).port);
      client.end(STREAM);
      assert.equal(await client.finished(), 'end');
      assert.equal(client.text, `7001 ${STREAM.length}`);
    }
  });

  test('a stream that a small MTU swallows is reset in time, and harms no other; where the kernel probes, it arrives', async (t) => {
    const [endpoint] = (await endpointsBehindSmallMtu(t, { isSilent: true })).IPv4;
    const rig = await makeRig(t, { tcpUserTimeoutMs: 2000 });
    const { port } = await rig.open('TCP', [endpoint]);
    const [small, large] = [await connectTcp(port), await connectTcp(port)];
    small.send('before ');
    large.send(STREAM);
    assert.equal(await large.finished(), 'ECONNRESET');
    small.end('after');
    assert.equal(await small.finished(), 'end');
    assert.equal(small.text, '7001 12');

    setSysctl(t, 'ipv4/tcp_mtu_probing', 1);
    const patient = await makeRig(t);
    const probed = await connectTcp((await patient.open('TCP', [endpoint])).port);
    probed.end(STREAM);
    assert.equal(await probed.finished(), 'end');
    assert.equal(probed.text, `7001 ${STREAM.length}`);
  });

  test('datagrams that a small MTU swallows harm no other: the flow stays with its endpoint', async (t) => {
    const behind = await endpointsBehindSmallMtu(t, { isSilent: true });
    const rig = await makeRig(t);
    for (const endpoints of [behind.IPv4, behind.IPv6]) {
      const { name, port } = await rig.open('UDP', endpoints);
      const client = await UdpClient.connect(t, port);
      await client.ask('small');
      for (let i = 0; i < 5; i++) client.send(BIG);
      // One that leaves together with a big one may go with it.
      await waitFor('an answer', () => {
        if (client.texts.some((text) => text.endsWith(' 9'))) return true;
        client.send('small too');
        return false;
      });
      assert.equal(new Set(client.texts.map((text) => text.split(' ')[0])).size, 1, 'one endpoint');
      assert.equal(rig.counters(name).connections, 1);
    }
    assert.deepEqual(rig.events.dialFailed, []);
  });

  test('a stream arrives whole and in order over a path that loses packets, so that others overtake them', async (t) => {
    const rig = await makeRig(t);
    const echo = await TcpBackend.echo(t);
    const { port } = await rig.open('TCP', [echo.endpoint]);
    for (const at of [port, echo.endpoint.port]) {
      for (const end of ['--sport', '--dport']) drop(t, 'INPUT', '-p', 'tcp', end, String(at), ...every(20));
    }
    const bytes = 16 << 20;
    const socket = await connectSocket(port);
    const received = new PatternReceiver(socket);
    await new PatternSender(socket).send(bytes);
    socket.end();
    await waitFor('the last byte', () => received.receivedBytes === bytes, 300_000);
    assert.ok(received.isIntact, 'the bytes differ');
  });

  test('over a path that loses, delays and reorders datagrams, each answer finds its client and no flow ends', async (t) => {
    const rig = await makeRig(t);
    const backend = await UdpBackend.start(t, (datagram, reply) => {
      setTimeout(() => reply(datagram), Math.random() * 200);
    });
    const { name, port } = await rig.open('UDP', [backend.endpoint]);
    drop(t, 'INPUT', '-p', 'udp', '--dport', String(backend.endpoint.port), ...every(5));
    const clients = await Promise.all(Array.from({ length: 20 }, () => UdpClient.connect(t, port)));
    await Promise.all(
      clients.map(async (client, who) => {
        const questions = Array.from({ length: 10 }, (_, i) => `${who} ${i}`);
        await waitFor('all answers', async () => {
          const missing = questions.filter((question) => !client.texts.includes(question));
          for (const question of missing) client.send(question);
          await sleep(300);
          return missing.length === 0;
        });
        assert.deepEqual(new Set(client.texts), new Set(questions));
      }),
    );
    assert.equal(rig.counters(name).connections, clients.length);
  });

  test('a flood from forged addresses over many ports is bounded, and flows that were there go on', async (t) => {
    const rig = await makeRig(t, { udpMaxFlowsPerService: 20, udpMaxFlows: 100 });
    const [silent, echo] = [await UdpBackend.start(t), await UdpBackend.echo(t)];
    const other = await rig.open('UDP', [echo.endpoint]);
    const clients = await Promise.all(Array.from({ length: 3 }, () => UdpClient.connect(t, other.port)));
    for (const client of clients) await client.ask('before');
    const flooded = await Promise.all(Array.from({ length: 6 }, () => rig.open('UDP', [silent.endpoint])));
    for (let i = 0; i < FORGED; i++) {
      const { port } = flooded[i % flooded.length] as { readonly port: number };
      const sender = await UdpClient.connect(t, port, { from: `127.1.${i >> 8}.${i & 255}` });
      await sender.delivered('forged');
    }
    const counted = () => flooded.map(({ name }) => rig.counters(name));
    await waitFor('all to be at a bound', () => counted().every(({ limited }) => limited > 0));
    const active = counted().map((counters) => counters.active);
    assert.ok(Math.max(...active) <= 20 && active.reduce((sum, one) => sum + one) <= 100, active.join());
    for (const client of clients) assert.equal(await client.ask('after'), 'after');
    assert.equal(rig.counters(other.name).connections, clients.length);
  });

  test('an idle connection outlives the memory of a firewall on its way, and ends when one of its sides has vanished', async (t) => {
    setSysctl(t, 'netfilter/nf_conntrack_tcp_timeout_established', FORGOTTEN_AFTER_S);
    // A packet of a connection that it does not know is not taken for the beginning of one.
    setSysctl(t, 'netfilter/nf_conntrack_tcp_loose', 0);
    setSysctl(t, 'ipv4/tcp_keepalive_probes', 1);
    drop(t, 'INPUT', '-p', 'tcp', '-m', 'conntrack', '--ctstate', 'INVALID');
    const rig = await makeRig(t);
    const pair = async () => {
      const server = await TcpBackend.start(t);
      const { port } = await rig.open('TCP', [server.endpoint]);
      const client = await connectTcp(port);
      const backend = await waitFor('the backend to accept', () => server.peers[0]);
      client.send('before ');
      await backend.hasReceived(7);
      return { port, client, backend, endpoint: server.endpoint };
    };
    const [idle, leftByClient, leftByBackend] = [await pair(), await pair(), await pair()];
    drop(t, 'INPUT', '-p', 'tcp', '--dport', String(leftByClient.port));
    drop(t, 'INPUT', '-p', 'tcp', '--sport', String(leftByBackend.endpoint.port));
    const began = performance.now();
    assert.equal(await leftByClient.backend.finished(), 'ECONNRESET');
    assert.equal(await leftByBackend.client.finished(), 'ECONNRESET');
    await sleep(FORGOTTEN_AFTER_S * 1000 - (performance.now() - began));
    idle.client.send('after');
    await idle.backend.hasReceived(12);
    assert.equal(idle.backend.text, 'before after');
  });
}
