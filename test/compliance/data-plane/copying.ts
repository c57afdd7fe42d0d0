import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { PatternReceiver, PatternSender } from '../../support/pattern.ts';
import { descriptorOf, MSG_OOB, sendTo } from '../../support/raw-tcp.ts';
import { connectSocket, connectTcp, TcpBackend, TcpPeer } from '../../support/tcp.ts';
import { endpointsOf, type Rig, type RigFactory } from './harness.ts';

const MIB = 1 << 20;

/** More than every kernel buffer on the way can hold, less than what is offered. */
const MOST_IN_FLIGHT = 64 * MIB;
const OFFERED = 160 * MIB;

/** Two sockets joined by the engine, with nobody reading them yet. */
async function join(t: TestContext, rig: Rig): Promise<{ client: Socket; backend: Socket }> {
  const server = await TcpBackend.raw(t, () => {});
  const { port } = await rig.open('TCP', [server.endpoint]);
  const client = await connectSocket(port);
  return { client, backend: await waitFor('the backend to accept', () => server.sockets[0]) };
}

async function transfer(from: Socket, to: Socket, bytes: number): Promise<void> {
  const received = new PatternReceiver(to);
  const ended = once(to, 'end');
  await new PatternSender(from).send(bytes);
  from.end();
  await ended;
  assert.equal(received.receivedBytes, bytes);
  assert.ok(received.isIntact, 'the bytes differ');
}

export function copyingTests(makeRig: RigFactory): void {
  for (const receiver of ['client', 'backend'] as const) {
    test(`256 MiB to the ${receiver} arrives whole and in order`, async (t) => {
      const sides = await join(t, await makeRig(t));
      await transfer(sides[receiver === 'client' ? 'backend' : 'client'], sides[receiver], 256 * MIB);
    });
  }

  test('both directions flow at once', async (t) => {
    const { client, backend } = await join(t, await makeRig(t));
    await Promise.all([transfer(client, backend, 64 * MIB), transfer(backend, client, 64 * MIB)]);
  });

  for (const stalled of ['client', 'backend'] as const) {
    test(`a ${stalled} that does not read stops the sender, and loses nothing`, async (t) => {
      const sides = await join(t, await makeRig(t));
      const from = stalled === 'client' ? sides.backend : sides.client;
      const to = sides[stalled];
      const sender = new PatternSender(from);
      const sent = sender.send(OFFERED);
      for (let before = 0; sender.acceptedBytes === 0 || sender.acceptedBytes > before; ) {
        before = sender.acceptedBytes;
        await sleep(500);
      }
      assert.ok(sender.acceptedBytes < MOST_IN_FLIGHT, `${sender.acceptedBytes} bytes`);
      const received = new PatternReceiver(to);
      await sent;
      await waitFor('the rest to arrive', () => received.receivedBytes === OFFERED);
      assert.ok(received.isIntact, 'the bytes differ');
    });
  }

  test('an urgent byte holds nothing up, and all others arrive in order', async (t) => {
    const { client, backend } = await join(t, await makeRig(t));
    const receiver = new TcpPeer(backend);
    // Enough before it that an engine which splices does so by then.
    const [before, after] = [randomBytes(8 * MIB), randomBytes(8 * MIB)];
    await new Promise((written) => client.write(before, written));
    sendTo(descriptorOf(client), '!', MSG_OOB);
    client.end(after);
    assert.equal(await receiver.finished(), 'end');
    const { bytes } = receiver;
    assert.ok(bytes.subarray(0, before.length).equals(before), 'the bytes before it differ');
    // Whether the urgent one stays in its place is the engine's own choice.
    const rest = bytes.subarray(before.length);
    assert.ok(rest.equals(after) || rest.equals(Buffer.concat([Buffer.from('!'), after])), 'those behind it differ');
  });

  test('a stalled connection does not hold up another of the same Service port', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.raw(t, (socket) => {
      // The stalled one never comes to its end.
      new PatternSender(socket).send(OFFERED).catch(() => {});
    });
    const { port } = await rig.open('TCP', [server.endpoint]);
    await connectSocket(port);
    const reader = await connectSocket(port);
    const received = new PatternReceiver(reader);
    await waitFor('all to arrive', () => received.receivedBytes === OFFERED);
    assert.ok(received.isIntact, 'the bytes differ');
  });

  test('many connections at once get their own bytes back, and nobody else’s', async (t) => {
    const rig = await makeRig(t);
    const servers = [await TcpBackend.echo(t), await TcpBackend.echo(t)];
    const { name, port } = await rig.open('TCP', endpointsOf(servers));
    const talk = async (): Promise<void> => {
      const client = await connectTcp(port);
      const token = randomBytes(16).toString('hex');
      const sent = token.repeat(1 + Math.floor(Math.random() * 3000));
      for (let at = 0; at < sent.length; at += 20_000) {
        client.send(sent.slice(at, at + 20_000));
        await turn();
      }
      client.end();
      assert.equal(await client.finished(), 'end');
      assert.ok(client.text === sent, 'the bytes differ');
    };
    for (let round = 0; round < 3; round++) await Promise.all(Array.from({ length: 300 }, talk));
    assert.equal(rig.counters(name).connections, 900);
    await waitFor('all connections to be over', () => rig.counters(name).active === 0);
  });

  test('small messages are not held back for fuller packets', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t);
    const { port } = await rig.open('TCP', [server.endpoint]);
    const client = await connectTcp(port);
    const backend = await waitFor('the backend to accept', () => server.peers[0]);
    const rounds: number[] = [];
    for (let round = 1; round <= 60; round++) {
      const began = performance.now();
      for (const [from, to] of [
        [client, backend],
        [backend, client],
      ] as const) {
        // The first goes out in any case. The second would wait for its acknowledgement, which comes 40 ms late.
        for (const bytes of [2 * round - 1, 2 * round]) {
          from.send('x');
          await to.hasReceived(bytes);
        }
      }
      rounds.push(performance.now() - began);
    }
    // Acknowledgements come at once in the beginning. The quickest one: a busy machine holds up many, yet not all.
    const quickest = Math.min(...rounds.slice(20));
    assert.ok(quickest < 40, `${quickest} ms`);
  });

  test('both sides have keepalive on, at 15 s', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t);
    const { port } = await rig.open('TCP', [server.endpoint]);
    await connectTcp(port);
    await waitFor('the backend to accept', () => server.peers[0]);
    for (const filter of [`sport = :${port}`, `dport = :${server.endpoint.port}`]) {
      const listed = execFileSync('ss', ['--no-header', '-tno', 'state', 'established', filter], { encoding: 'utf8' });
      assert.match(listed, /timer:\(keepalive,(1[0-5]|[1-9])(\.\d+)?sec,0\)/);
    }
  });
}
