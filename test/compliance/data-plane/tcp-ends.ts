import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { DataPlaneOptions } from '../../../src/model/data-plane.ts';
import { unacknowledgedBytes } from '../../../src/sys/socket.ts';
import { waitFor } from '../../netns/wait.ts';
import { RawListener } from '../../support/raw-tcp.ts';
import { ask, connectTcp, TcpBackend, TcpPeer } from '../../support/tcp.ts';
import { endpointAt, type RigFactory, SETTLED_MS } from './harness.ts';
import { BLACK_HOLE, drop } from './network.ts';

const MEGABYTE = Buffer.alloc(1 << 20, 'm');
const PIECE = Buffer.alloc(16 << 10, 'p');

/** Several times the timeout, and a few probes of a closed window, which come at longer and longer intervals. */
const PAUSE_MS = 2500;

/** Both sides of one connection through a rig. */
async function pair(t: TestContext, makeRig: RigFactory, options?: Partial<DataPlaneOptions>) {
  const rig = await makeRig(t, options);
  const server = await TcpBackend.start(t);
  const { name, port } = await rig.open('TCP', [server.endpoint]);
  const client = await connectTcp(port);
  const backend = await waitFor('the backend to accept', () => server.peers[0]);
  const resets = () => [rig.counters(name).resets, rig.plane.statsOf(name)?.endpoints?.[0]?.counters.resets];
  return { client, backend, active: () => rig.counters(name).active, resets };
}

export function tcpEndTests(makeRig: RigFactory): void {
  test('a client may send and end its direction long before the backend answers', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.echo(t);
    const { port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80), server.endpoint]);
    // Half of the clients meet the black hole first.
    await Promise.all(
      ['', '', 'request', 'request', MEGABYTE, MEGABYTE].map(async (request) => {
        const client = await connectTcp(port);
        client.end(request);
        assert.equal(await client.finished(), 'end');
        assert.ok(client.bytes.equals(Buffer.from(request)));
      }),
    );
    if (!rig.dialsBeginAnew) await rig.reported('dialFailed', 3);
  });

  test('bytes that were sent before a clean end arrive, also at a slow reader', async (t) => {
    const { client, backend, active } = await pair(t, makeRig);
    client.socket.pause();
    for (let i = 0; i < 16; i++) backend.send(MEGABYTE);
    backend.end();
    await sleep(SETTLED_MS);
    client.socket.resume();
    assert.equal(await client.finished(), 'end');
    assert.equal(client.receivedBytes, 16 * MEGABYTE.length);
    client.end();
    await waitFor('the connection to be over', () => active() === 0);
    assert.equal(backend.error, undefined);
  });

  test('an end that both sides wanted stays clean for both', async (t) => {
    const { client, backend, active } = await pair(t, makeRig);
    client.end('bye');
    backend.end('bye');
    assert.deepEqual([await client.finished(), await backend.finished()], ['end', 'end']);
    await waitFor('the connection to be over', () => active() === 0);
    await sleep(SETTLED_MS);
    assert.deepEqual([client.error, backend.error], [undefined, undefined]);
  });

  for (const [one, other] of [
    ['client', 'backend'],
    ['backend', 'client'],
  ] as const) {
    test(`the ${one} may end its direction and still gets everything that the ${other} sends`, async (t) => {
      const sides = await pair(t, makeRig);
      sides[one].end('first');
      assert.equal(await sides[other].finished(), 'end');
      assert.equal(sides[other].text, 'first');
      assert.equal(sides[one].hasEnded, false, 'the other direction stays open');
      sides[other].end(MEGABYTE);
      assert.equal(await sides[one].finished(), 'end');
      assert.ok(sides[one].bytes.equals(MEGABYTE));
      await waitFor('the connection to be over', () => sides.active() === 0);
    });

    test(`a reset by the ${one} is a reset for the ${other}`, async (t) => {
      const sides = await pair(t, makeRig);
      sides[one].send('something');
      await waitFor('the bytes to arrive', () => sides[other].text === 'something');
      sides[one].reset();
      assert.equal(await sides[other].finished(), 'ECONNRESET');
      assert.equal(sides[other].hasEnded, false, 'no clean end came before');
      await waitFor('the connection to be over', () => sides.active() === 0);
      const resets = one === 'backend' ? 1 : 0;
      assert.deepEqual(sides.resets(), [resets, resets], 'of the Service port and the endpoint');
    });

    test(`a reset by the ${one} in full flow is a reset for the ${other}`, async (t) => {
      const sides = await pair(t, makeRig);
      for (const side of [sides[one], sides[other]]) for (let i = 0; i < 8; i++) side.send(MEGABYTE);
      await waitFor('the flow to begin', () => sides[other].receivedBytes > 0 && sides[one].receivedBytes > 0);
      sides[one].reset();
      await sides[other].finished();
      // EPIPE where the other side was just writing.
      assert.match(sides[other].error ?? 'a clean end', /^(ECONNRESET|EPIPE)$/);
      await waitFor('the connection to be over', () => sides.active() === 0);
    });

    test(`after the ${other} has ended its direction, a reset by the ${one} still reaches it`, async (t) => {
      const sides = await pair(t, makeRig);
      sides[other].end('last words');
      assert.equal(await sides[one].finished(), 'end');
      sides[one].reset();
      assert.equal(await sides[other].finished(), 'ECONNRESET');
      await waitFor('the connection to be over', () => sides.active() === 0);
    });

    test(`after the ${one} has ended its direction, its reset still reaches the ${other}`, async (t) => {
      const sides = await pair(t, makeRig);
      sides[one].end('last words');
      assert.equal(await sides[other].finished(), 'end');
      sides[one].reset();
      // A peer that has read the end of a stream sees its reset only when it writes.
      await waitFor('the reset to arrive', () => {
        sides[other].send('?');
        return sides[other].error !== undefined;
      });
      assert.match(sides[other].error ?? '', /^(ECONNRESET|EPIPE)$/);
      await waitFor('the connection to be over', () => sides.active() === 0);
    });
  }

  test('a side that closes while the other still sends is a reset for the sender', async (t) => {
    const { client, backend, active } = await pair(t, makeRig);
    client.socket.destroy();
    const sending = setInterval(() => backend.send('more'), 10);
    t.after(() => clearInterval(sending));
    await waitFor('the sender to see the reset', () => backend.error !== undefined);
    assert.match(backend.error ?? '', /^(ECONNRESET|EPIPE)$/);
    await waitFor('the connection to be over', () => active() === 0);
  });

  test('a half-open connection in which nothing moves is ended', async (t) => {
    const { client, backend, active } = await pair(t, makeRig, { tcpHalfOpenTimeoutMs: 200 });
    // The engine reads the clock once per turn: it must not see the end in the turn in which it connected them.
    backend.send('.');
    await client.hasReceived(1);
    const began = performance.now();
    client.end();
    assert.equal(await client.finished(), 'ECONNRESET', 'the answer that it waits for did not end');
    const elapsed = performance.now() - began;
    assert.ok(elapsed >= 195, `${elapsed} ms`);
    await waitFor('the connection to be over', () => active() === 0);
    backend.send('too late');
    await waitFor('the backend to see the reset', () => {
      if (!backend.socket.destroyed) backend.send('!');
      return backend.error !== undefined;
    });
  });

  test('a half-open connection is ended, also if the client ended its direction before the backend answered', async (t) => {
    const rig = await makeRig(t, { tcpHalfOpenTimeoutMs: 200 });
    const { name, port } = await rig.open('TCP', [endpointAt(BLACK_HOLE, 80), (await TcpBackend.start(t)).endpoint]);
    const clients = await Promise.all([connectTcp(port), connectTcp(port)]);
    for (const client of clients) client.end();
    for (const client of clients) assert.equal(await client.finished(), 'ECONNRESET');
    await waitFor('the connections to be over', () => rig.counters(name).active === 0);
  });

  test('a half-open connection is not ended while bytes move', async (t) => {
    const { client, backend, active } = await pair(t, makeRig, { tcpHalfOpenTimeoutMs: 2000 });
    backend.end();
    for (let i = 0; i < 8; i++) {
      client.send('x');
      await sleep(300);
      await waitFor(`it to be open after ${i} rounds`, () => active() === 1);
    }
    await waitFor('the last byte', () => backend.text === 'xxxxxxxx');
    await waitFor('the connection to be over', () => active() === 0);
  });

  test('a connection is half-open, too, when the end of a side waits behind bytes that the other does not read', async (t) => {
    const rig = await makeRig(t, { tcpHalfOpenTimeoutMs: 400 });
    const listener = new RawListener(t);
    const { name, port } = await rig.open('TCP', [listener.endpoint]);
    const client = await connectTcp(port);
    client.socket.pause();
    const backend = await listener.accepted();
    // Until bytes lie in the engine's socket that it does not read any more. They must not fill it: an end that cannot
    // be sent is none.
    const readBytes = () => rig.counters(name).sentBytes;
    for (let sent = 0; readBytes() === sent; ) {
      sent += backend.send(PIECE);
      const patience = performance.now() + SETTLED_MS;
      while (readBytes() < sent && performance.now() < patience) await sleep(1);
    }
    await waitFor('the bytes to arrive', () => unacknowledgedBytes(backend.fd) === 0);
    backend.close();
    await waitFor('the connection to be over', () => rig.counters(name).active === 0);
    assert.equal(client.hasEnded, false);
  });

  test('a half-open connection with a reader that never reads is ended', async (t) => {
    const { client, backend, active } = await pair(t, makeRig, { tcpHalfOpenTimeoutMs: 200 });
    client.socket.pause();
    for (let i = 0; i < 24; i++) backend.send(MEGABYTE);
    await sleep(SETTLED_MS);
    client.end();
    await waitFor('the connection to be over', () => active() === 0);
  });

  test('a connection that is open both ways may be silent for longer', async (t) => {
    const { client, backend, active } = await pair(t, makeRig, { tcpHalfOpenTimeoutMs: 100 });
    await sleep(400);
    await waitFor('it to be open', () => active() === 1);
    client.end('still here');
    backend.end();
    assert.equal(await backend.finished(), 'end');
    assert.equal(backend.text, 'still here');
  });

  test('a connection to an endpoint that acknowledges nothing any more is reset', async (t) => {
    const { client, backend, active, resets } = await pair(t, makeRig, { tcpUserTimeoutMs: 500 });
    client.send('request');
    await waitFor('the request', () => backend.text === 'request');
    drop(t, 'INPUT', '-p', 'tcp', '--dport', String(backend.socket.localPort));
    const began = performance.now();
    client.send('one that never arrives');
    assert.equal(await client.finished(), 'ECONNRESET');
    const elapsed = performance.now() - began;
    assert.ok(elapsed >= 495, `${elapsed} ms`);
    await waitFor('the connection to be over', () => active() === 0);
    assert.deepEqual(resets(), [1, 1], 'of the Service port and the endpoint');
  });

  test('a reader that pauses for longer than the user timeout gets everything, because it acknowledges', async (t) => {
    const rig = await makeRig(t, { tcpUserTimeoutMs: 500 });
    const server = await TcpBackend.raw(t, (socket) => socket.pause());
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const client = await connectTcp(port);
    for (let i = 0; i < 16; i++) client.send(MEGABYTE);
    const backend = await waitFor('the backend to accept', () => server.sockets[0]);
    await sleep(PAUSE_MS);
    await waitFor('it to be open', () => rig.counters(name).active === 1);
    const reader = new TcpPeer(backend);
    backend.resume();
    client.end();
    assert.equal(await reader.finished(), 'end');
    assert.equal(reader.receivedBytes, 16 * MEGABYTE.length);
  });

  test('closing a Service port leaves its connections alone', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await rig.open('TCP', [(await TcpBackend.echo(t)).endpoint]);
    const client = await connectTcp(port);
    client.send('before ');
    await waitFor('the answer', () => client.text === 'before ');
    await rig.plane.close(name);
    await assert.rejects(ask(port), { code: 'ECONNREFUSED' });
    client.end('after');
    assert.equal(await client.finished(), 'end');
    assert.equal(client.text, 'before after');
  });

  test('shutting down resets every connection, those of closed Service ports and those being dialled too', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.start(t);
    const open = await rig.open('TCP', [server.endpoint]);
    const closed = await rig.open('TCP', [server.endpoint]);
    const clients = [await connectTcp(open.port), await connectTcp(closed.port)];
    await waitFor('both to be connected', () => server.peers.length === 2);
    await rig.plane.close(closed.name);
    await rig.plane.shutdown();
    for (const peer of [...clients, ...server.peers]) assert.equal(await peer.finished(), 'ECONNRESET');
    await assert.rejects(ask(open.port), { code: 'ECONNREFUSED' });
  });
}
