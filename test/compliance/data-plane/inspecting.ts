import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DataPlane, OpenConnection } from '../../../src/model/data-plane.ts';
import { endpointName } from '../../../src/model/endpoint.ts';
import type { ListenerId } from '../../../src/model/service-port.ts';
import { waitFor } from '../../netns/wait.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { ask, connectSocket, connectTcp, refusingEndpoint, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, clientAt, endpointAt, endpointsOf, type RigFactory } from './harness.ts';
import { BLACK_HOLE, NODE_ADDRESSES } from './network.ts';

const LOOPBACK = endpointAt('127.0.0.1', 0).address;
const TIMEOUT_MS = 60_000;
const IDLE_MS = 4000;

export async function listed(plane: DataPlane, id: ListenerId): Promise<readonly OpenConnection[]> {
  const all: OpenConnection[] = [];
  for await (const piece of plane.connections(id)) all.push(...piece);
  return all;
}

async function listedOnce(plane: DataPlane, id: ListenerId, count: number): Promise<readonly OpenConnection[]> {
  return await waitFor(`${count} to be open`, async () => {
    const all = await listed(plane, id);
    return all.length === count ? all : undefined;
  });
}

function clientOf(peer: TcpPeer | UdpClient): OpenConnection['client'] {
  const { address, port } =
    peer instanceof UdpClient
      ? peer.socket.address()
      : { address: peer.socket.localAddress ?? '', port: peer.socket.localPort ?? 0 };
  return clientAt(address, port);
}

export function inspectingTests(makeRig: RigFactory): void {
  test('a connection is listed with its client and endpoint for as long as it is open, and at its own port alone', async (t) => {
    const rig = await makeRig(t);
    const { endpoint } = await TcpBackend.echo(t);
    const mine = await rig.open('TCP', [endpoint]);
    // Of two threads the first has the third listener, too.
    await rig.open('TCP', []);
    const others = await rig.open('TCP', [endpoint]);
    const client = await connectTcp(mine.port, { from: NODE_ADDRESSES[1] });
    const other = await connectTcp(others.port);
    for (const peer of [client, other]) {
      peer.send('.');
      await peer.hasReceived(1);
    }
    assert.equal(clientOf(client).address, NODE_ADDRESSES[1]);
    for (const [port, peer] of [
      [mine, client],
      [others, other],
    ] as const) {
      assert.deepEqual(await listed(rig.plane, port.name), [
        { client: clientOf(peer), endpoint, state: 'established' },
      ]);
    }
    client.end();
    await client.finished();
    await listedOnce(rig.plane, mine.name, 0);
  });

  test('an IPv6 client is listed by its address', async (t) => {
    const rig = await makeRig(t);
    const { endpoint } = await TcpBackend.echo(t);
    const spec = listenSpec({ name: 'test/v6', protocol: 'TCP', address: '::1', port: 0 });
    const client = await connectTcp(await rig.plane.open(spec, backends([endpoint])), { to: '::1' });
    const [connection] = await listedOnce(rig.plane, spec.id, 1);
    assert.deepEqual(connection?.client, clientOf(client));
  });

  for (const side of ['client', 'backend'] as const) {
    test(`a connection is half-closed when its ${side} has ended, and says how long it may be silent`, async (t) => {
      const rig = await makeRig(t, { tcpHalfOpenTimeoutMs: TIMEOUT_MS });
      const server = await TcpBackend.start(t);
      const { name, port } = await rig.open('TCP', [server.endpoint]);
      const client = await connectTcp(port);
      await waitFor('the connection to arrive', () => server.peers.length === 1);
      (side === 'client' ? client : server.peers[0])?.end();
      const connection = await waitFor('it to be half-closed', async () =>
        (await listed(rig.plane, name)).find(({ state }) => state === 'half-closed'),
      );
      const { expiresMs = 0, ...rest } = connection;
      assert.deepEqual(rest, { client: clientOf(client), endpoint: server.endpoint, state: 'half-closed' });
      assert.ok(
        Number.isInteger(expiresMs) && expiresMs > TIMEOUT_MS / 2 && expiresMs <= TIMEOUT_MS,
        `${expiresMs} ms`,
      );
    });
  }

  test('a connection that has no answer yet is dialling, with the endpoint that is being tried', async (t) => {
    const rig = await makeRig(t);
    const endpoint = endpointAt(BLACK_HOLE, 80);
    const { name, port } = await rig.open('TCP', [endpoint]);
    const client = await connectTcp(port);
    const connection = await waitFor('it to be tried', async () =>
      (await listed(rig.plane, name)).find((each) => each.endpoint !== undefined),
    );
    assert.deepEqual(connection, { client: clientOf(client), endpoint, state: 'dialling' });
    client.reset();
    await listedOnce(rig.plane, name, 0);
  });

  test('UDP flows are listed with the time they have left, until they end', async (t) => {
    const rig = await makeRig(t, { udpIdleTimeoutMs: IDLE_MS, udpFirstReplyTimeoutMs: TIMEOUT_MS });
    const [echo, silent] = [await UdpBackend.echo(t), await UdpBackend.start(t)];
    const [answered, unanswered] = [await rig.open('UDP', [echo.endpoint]), await rig.open('UDP', [silent.endpoint])];
    const client = await UdpClient.connect(t, answered.port);
    const waiting = await UdpClient.connect(t, unanswered.port, { to: NODE_ADDRESSES[0] });
    await client.ask('.');
    waiting.send('.');
    for (const [{ name }, peer, endpoint, maxMs] of [
      [answered, client, echo.endpoint, IDLE_MS],
      [unanswered, waiting, silent.endpoint, TIMEOUT_MS],
    ] as const) {
      const [{ expiresMs = 0, ...flow } = {}] = await listedOnce(rig.plane, name, 1);
      assert.deepEqual(flow, { client: clientOf(peer), endpoint, state: 'flow' });
      assert.ok(expiresMs > 0 && expiresMs <= maxMs && (maxMs < TIMEOUT_MS || expiresMs > IDLE_MS), `${expiresMs} ms`);
    }
    await listedOnce(rig.plane, answered.name, 0);
    await rig.plane.close(unanswered.name);
    assert.deepEqual(await listed(rig.plane, unanswered.name), []);
  });

  test('a closed listener lists nothing, although its connections go on', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.echo(t);
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const client = await connectTcp(port);
    await listedOnce(rig.plane, name, 1);
    await rig.plane.close(name);
    assert.deepEqual(await listed(rig.plane, name), []);
    await rig.plane.open(listenSpec({ name, protocol: 'TCP', address: '0.0.0.0', port: 0 }), backends([]));
    assert.deepEqual(await listed(rig.plane, name), [], 'another listener of the same name has none of them');
    client.end('still here');
    await client.finished();
    assert.equal(client.text, 'still here');
  });

  test('a long list comes in pieces, each connection once, and clients are served between them', async (t) => {
    const rig = await makeRig(t);
    const server = await TcpBackend.raw(t, (socket) => socket.resume());
    const { name, port } = await rig.open('TCP', [server.endpoint]);
    const named = await rig.open('TCP', [(await TcpBackend.named(t, 'served')).endpoint]);
    const clients = await Promise.all(Array.from({ length: 640 }, () => connectSocket(port)));
    t.after(() => {
      for (const client of clients) client.destroy();
    });
    // Counted here, because a slow machine may make the engine dial the backend more often.
    await waitFor('all to be there', () => rig.counters(name).active === clients.length);
    const sizes: number[] = [];
    const ports: number[] = [];
    for await (const piece of rig.plane.connections(name)) {
      sizes.push(piece.length);
      ports.push(...piece.map(({ client }) => client.port));
      assert.equal(await ask(named.port), 'served');
    }
    assert.ok(Math.min(...sizes) > 0 && Math.max(...sizes) <= 256, sizes.join());
    assert.deepEqual(ports.toSorted(), clients.map(({ localPort = 0 }) => localPort).toSorted());

    // A consumer may leave a list early. Other lists are complete.
    for await (const _ of rig.plane.connections(name)) break;
    const [one, other] = await Promise.all([listed(rig.plane, name), listed(rig.plane, name)]);
    assert.deepEqual([one.length, other.length], [640, 640]);
    const listing = rig.plane.connections(name)[Symbol.asyncIterator]();
    await listing.next();
    await rig.plane.close(name);
    assert.equal((await listing.next()).done, true, 'a list ends with its listener');
  });

  test('the next pick is what the next connection gets, and asking takes no turn', async (t) => {
    const rig = await makeRig(t);
    const servers = await Promise.all(Array.from({ length: 3 }, () => TcpBackend.start(t, (peer) => peer.end('.'))));
    const { name, port } = await rig.open('TCP', endpointsOf(servers));
    const order: string[] = [];
    for (let i = 0; i < 6; i++) {
      const [first, second] = [await rig.plane.nextPick(name, LOOPBACK), await rig.plane.nextPick(name, LOOPBACK)];
      assert.ok(first !== undefined);
      assert.deepEqual(second, first);
      const before = servers.map(({ peers }) => peers.length);
      await ask(port);
      const served = servers.find(({ peers }, index) => peers.length > (before[index] ?? 0));
      assert.deepEqual(served?.endpoint, first);
      order.push(endpointName(first));
    }
    assert.equal(new Set(order).size, 3);
    assert.deepEqual(order.slice(3), order.slice(0, 3));
  });

  test('there is no next pick without endpoints, nor for a listener that is not open', async (t) => {
    const rig = await makeRig(t);
    const { name } = await rig.open('TCP', []);
    assert.equal(await rig.plane.nextPick(name, LOOPBACK), undefined);
    const endpoint = refusingEndpoint(t);
    rig.plane.update(name, backends([endpoint]));
    assert.deepEqual(await rig.plane.nextPick(name, LOOPBACK), endpoint);
    rig.plane.update(name, backends([]));
    assert.equal(await rig.plane.nextPick(name, LOOPBACK), undefined);
    await rig.plane.close(name);
    assert.equal(await rig.plane.nextPick(name, LOOPBACK), undefined);
  });
}
