import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { before, describe, type TestContext, test } from 'node:test';
import { pack, unpack } from '../../../src/engine/fast/parcels.ts';
import { URGENT_IN_LINE } from '../../../src/engine/fast/worker/endpoint-sockets.ts';
import type { Backends } from '../../../src/model/data-plane.ts';
import type { NamedEndpoint } from '../../../src/model/endpoint.ts';
import type { Parcel } from '../../../src/model/hand-over.ts';
import type { ServicePortName } from '../../../src/model/service.ts';
import { defaultCongestionControl } from '../../../src/sys/congestion-control.ts';
import { setOption } from '../../../src/sys/socket.ts';
import { endpointAt } from '../../compliance/data-plane/harness.ts';
import { BLACK_HOLE, buildNetwork } from '../../compliance/data-plane/network.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { waitFor } from '../../netns/wait.ts';
import { congestionControlsAt, otherCongestionControl } from '../../support/congestion.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { address } from '../../support/model.ts';
import { PatternReceiver, PatternSender } from '../../support/pattern.ts';
import { descriptorOf, MSG_OOB, sendTo } from '../../support/raw-tcp.ts';
import { ask, connectSocket, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { settle } from '../../support/until.ts';
import { all, closeAll, handOverOf, passOn, sendParcels } from './pass-on.ts';
import { type FastRig, fastRig, faultyRig, openDescriptors, openPort } from './rig.ts';

const NAME: ServicePortName = 'a/b';

before(buildNetwork);

async function pair(t: TestContext): Promise<readonly [FastRig, FastRig]> {
  return [await fastRig(t), await fastRig(t)];
}

/** A client of a port of `rig` that has had an "a" echoed. */
async function connected(t: TestContext, rig: FastRig) {
  const backend = await TcpBackend.echo(t);
  const port = await openPort(rig, NAME, [backend.endpoint]);
  const client = await connectTcp(port);
  client.send('a');
  await client.hasReceived(1);
  return { backend, port, client };
}

/** The client sends "b", gets its echo, and ends. */
async function goesOn(client: Awaited<ReturnType<typeof connectTcp>>): Promise<void> {
  client.send('b');
  await client.hasReceived(2);
  client.end();
  assert.equal(await client.finished(), 'end');
  assert.equal(client.text, 'ab');
}

function withAffinity(endpoints: readonly NamedEndpoint[]): Backends {
  return { endpoints, affinity: { type: 'ClientIP', timeoutSeconds: 60 } };
}

test('an established connection goes on at its draining endpoint, and counters and the local port stay', async (t) => {
  const [before, after] = await pair(t);
  const [draining, other] = [await TcpBackend.echo(t), await TcpBackend.echo(t)];
  const port = await openPort(before, NAME, [draining.endpoint]);
  const client = await connectTcp(port);
  client.send('one ');
  await client.hasReceived(4);
  const endpoints = { endpoints: [other.endpoint], draining: [draining.endpoint] };
  before.plane.update(NAME, { ...endpoints, affinity: { type: 'None' } });
  assert.deepEqual(await passOn(before.plane, after.plane), [
    { id: NAME, name: NAME, family: 'IPv4', protocol: 'TCP', address: '127.0.0.1', localPort: port },
  ]);
  client.send('two');
  await client.hasReceived(7);
  const another = await connectTcp(port);
  another.end('three');
  assert.equal(await another.finished(), 'end');
  assert.equal(another.text, 'three');

  const activeAndBytes = () => {
    const { counters, endpoints: shares = [] } = after.stats(NAME);
    return [counters, ...shares.map((share) => share.counters)].map(({ active, receivedBytes }) => [
      active,
      receivedBytes,
    ]);
  };
  await waitFor('the other one to be over', () => after.stats(NAME).counters.active === 1);
  assert.deepEqual(activeAndBytes(), [
    [1, 12],
    [0, 5],
    [1, 7],
  ]);
  assert.deepEqual([after.stats(NAME).localPort, after.stats(NAME).counters.connections], [port, 2]);
  client.end();
  assert.equal(await client.finished(), 'end');
  assert.equal(client.text, 'one two');
  await waitFor('both to be over', () => after.stats(NAME).counters.active === 0);
  assert.deepEqual(activeAndBytes(), [
    [0, 12],
    [0, 5],
    [0, 7],
  ]);
  assert.deepEqual([draining.sockets.length, other.sockets.length], [1, 1]);
});

test("the predecessor's congestion control ends with it", async (t) => {
  const [before, after] = [await fastRig(t, { congestionControl: otherCongestionControl() }), await fastRig(t)];
  const { port } = await connected(t, before);
  assert.deepEqual(congestionControlsAt('local', port), [otherCongestionControl()]);
  await passOn(before.plane, after.plane);
  const another = await connectTcp(port);
  another.send('a');
  await another.hasReceived(1);
  // The connection that went on keeps it.
  const expected = [otherCongestionControl(), defaultCongestionControl()];
  assert.deepEqual(new Set(congestionControlsAt('local', port)), new Set(expected));
  assert.equal(congestionControlsAt('local', port).length, 2);
});

test('a client that connects while everything is frozen waits, and is served afterwards', async (t) => {
  const [before, after] = await pair(t);
  const { backend, port, client: old } = await connected(t, before);
  await handOverOf(after.plane).freeze();
  const parcels = await handOverOf(before.plane).freeze();
  const waiting = await connectTcp(port);
  waiting.send('hello');
  old.send('b');
  await handOverOf(after.plane).adopt(await sendParcels(parcels));
  // When it answers again, it has had time to serve the client.
  await handOverOf(after.plane).freeze();
  assert.equal(waiting.receivedBytes, 0);
  assert.equal(backend.sockets.length, 1);
  await handOverOf(before.plane).release();
  handOverOf(after.plane).thaw();
  await waiting.hasReceived(5);
  await old.hasReceived(2);
  assert.equal(old.text, 'ab');
  waiting.end();
  old.end();
});

test('a listener gets an option that the predecessor did not set', async (t) => {
  const [before, after] = await pair(t);
  const port = await openPort(before, NAME, [(await TcpBackend.echo(t)).endpoint]);
  await handOverOf(after.plane).freeze();
  const parcels = await all(await handOverOf(before.plane).freeze());
  for (const fd of parcels.flatMap(({ fds }) => fds)) setOption(fd, { ...URGENT_IN_LINE, value: 0 });
  await handOverOf(after.plane).adopt(await sendParcels(parcels));
  await handOverOf(before.plane).release();
  const client = await connectTcp(port);
  sendTo(descriptorOf(client.socket), '!', MSG_OOB);
  client.end('rest');
  handOverOf(after.plane).thaw();
  assert.equal(await client.finished(), 'end');
  assert.equal(client.text, '!rest');
});

test('bytes that wait for a slow receiver, in pipes and in memory, arrive in order and once', async (t) => {
  const rigs = [await fastRig(t), await fastRig(t), await fastRig(t)] as const;
  const senders: PatternSender[] = [];
  const bytes = 24 << 20;
  const backend = await TcpBackend.raw(t, (socket) => {
    const sender = new PatternSender(socket);
    senders.push(sender);
    void sender.send(bytes).then(() => socket.end());
  });
  const port = await openPort(rigs[0], NAME, [backend.endpoint]);
  // More than there are pipes, so that both ways are in use.
  const clients = await Promise.all(Array.from({ length: 6 }, () => connectSocket(port)));
  for (const client of clients) client.pause();
  const stuck = () =>
    senders.length === clients.length && senders.every(({ acceptedBytes }) => acceptedBytes > 1 << 20);
  await waitFor('senders to be held up', stuck);
  await passOn(rigs[0].plane, rigs[1].plane);
  const receivers = clients.map((client) => new PatternReceiver(client));
  for (const client of clients) client.resume();
  await waitFor('some to arrive', () => receivers.every(({ receivedBytes }) => receivedBytes > 1 << 20));
  await passOn(rigs[1].plane, rigs[2].plane);
  await waitFor('all to arrive', () => receivers.every(({ receivedBytes }) => receivedBytes === bytes));
  assert.ok(receivers.every(({ isIntact }) => isIntact));
  for (const client of clients) client.destroy();
});

test('half-closed connections stay half-closed; an end or a reset during the hand-over is passed on after it', async (t) => {
  const [before, after] = await pair(t);
  const backend = await TcpBackend.start(t);
  const port = await openPort(before, NAME, [backend.endpoint]);
  const [asking, answered, ending, resetting] = [
    await connectTcp(port),
    await connectTcp(port),
    await connectTcp(port),
    await connectTcp(port),
  ];
  asking.end('question');
  answered.send('answered');
  ending.send('ending');
  resetting.send('resetting');
  const at = (text: string) => waitFor(text, () => backend.peers.find((peer) => peer.text === text));
  const [asked, done, , reset] = [
    await at('question'),
    await at('answered'),
    await at('ending'),
    await at('resetting'),
  ];
  done.end('bye');
  assert.equal(await answered.finished(), 'end');
  await waitFor('the end of the question', () => asked.hasEnded);

  await passOn(before.plane, after.plane, () => {
    ending.end(' now');
    resetting.reset();
  });
  asked.send('answer ');
  asked.end('whole');
  assert.equal(await asking.finished(), 'end');
  assert.equal(asking.text, 'answer whole');
  answered.end(' and more');
  for (const text of ['answered and more', 'ending now']) {
    const peer = await at(text);
    assert.equal(await peer.finished(), 'end');
    peer.end();
  }
  await waitFor('the reset', () => reset.error === 'ECONNRESET');
  await waitFor('all to be over', () => after.stats(NAME).counters.active === 0);
});

test('turns and affinity go on where they were', async (t) => {
  const [before, after] = await pair(t);
  const backends = await Promise.all(['x', 'y', 'z'].map((name) => TcpBackend.named(t, name)));
  const endpoints = backends.map(({ endpoint }) => endpoint);
  const port = await openPort(before, NAME, endpoints);
  const spec = listenSpec({ name: 'a/sticky', protocol: 'TCP', address: '127.0.0.1', port: 0 });
  const sticky = await before.plane.open(spec, withAffinity(endpoints));
  const order = [await ask(port), await ask(port), await ask(port)];
  const mine = await ask(sticky);
  const others = await ask(sticky, { from: '127.0.0.9' });
  assert.equal(await ask(port), order[0]);

  await passOn(before.plane, after.plane);
  after.plane.update(NAME, { endpoints, affinity: { type: 'None' } });
  after.plane.update(spec.name, withAffinity(endpoints));
  assert.deepEqual([await ask(port), await ask(port), await ask(port)], [order[1], order[2], order[0]]);
  assert.deepEqual([await ask(sticky), await ask(sticky, { from: '127.0.0.9' })], [mine, others]);
  assert.notEqual(mine, others);
});

test('UDP flows keep their endpoint and their sockets, and replies come from the address that was asked', async (t) => {
  const [before, after] = await pair(t);
  const backends = [await UdpBackend.start(t), await UdpBackend.start(t)] as const;
  const endpoints = backends.map(({ endpoint }) => endpoint);
  const spec = listenSpec({ name: NAME, protocol: 'UDP', address: '0.0.0.0', port: 0 });
  const port = await before.plane.open(spec, { endpoints, affinity: { type: 'None' } });
  const client = await UdpClient.connect(t, port, { to: '127.0.0.5' });
  client.send('one');
  const backend = await waitFor('the first', () => backends.find(({ arrivals }) => arrivals.length === 1));
  const [flow] = backend.flows as [number];
  await passOn(before.plane, after.plane, () => {
    backend.push(flow, 'reply to one');
    client.send('two');
  });
  await waitFor('the reply', () => client.texts.includes('reply to one'));
  await waitFor('the second', () => backend.texts.includes('two'));
  assert.deepEqual(backend.flows, [flow]);
  const { counters } = after.stats(NAME);
  assert.deepEqual([counters.connections, counters.active], [1, 1]);
});

test('an answer of a draining endpoint arrives, and its client stays with its next endpoint', async (t) => {
  const [before, after] = await pair(t);
  const [leaving, staying] = [await UdpBackend.start(t), await UdpBackend.named(t, 'staying')];
  const client = await UdpClient.connect(t, await openPort(before, NAME, [leaving.endpoint], 'UDP'));
  client.send('?');
  const [flow] = await waitFor('the question', () => leaving.arrivals.length === 1 && leaving.flows);
  const others: Backends = { endpoints: [staying.endpoint], affinity: { type: 'None' } };
  before.plane.update(NAME, { ...others, draining: [leaving.endpoint] });
  assert.equal(await client.ask('next'), 'staying');
  await passOn(before.plane, after.plane);
  leaving.push(flow ?? 0, 'late');
  await waitFor('what is late', () => client.texts.includes('late'));
  assert.equal(await client.ask('again'), 'staying');
  assert.equal(staying.flows.length, 1);
  assert.equal(after.stats(NAME).counters.active, 2);
  after.plane.update(NAME, others);
  await waitFor('the old flow to end', () => after.stats(NAME).counters.active === 1);
  assert.equal(await client.ask('again'), 'staying');
  assert.equal(staying.flows.length, 1);
});

test('connections of a Service port that is closed by now go on', async (t) => {
  const [before, after] = await pair(t);
  const { client } = await connected(t, before);
  await before.plane.close(NAME);
  assert.deepEqual(await passOn(before.plane, after.plane), []);
  await goesOn(client);
});

test('a dial that is under way begins anew', async (t) => {
  const [before, after] = await pair(t);
  const backend = await TcpBackend.named(t, 'here');
  const port = await openPort(before, NAME, [endpointAt(BLACK_HOLE, 80)]);
  const client = await connectTcp(port);
  await waitFor('the client to be accepted', () => before.stats(NAME).counters.active === 1);
  await passOn(before.plane, after.plane);
  after.plane.update(NAME, { endpoints: [backend.endpoint], affinity: { type: 'None' } });
  assert.equal(await client.finished(), 'end');
  assert.equal(client.text, 'here');
  assert.equal(after.stats(NAME).counters.connections, 1);
  client.end();
});

test('a client that was dialled for during the hand-over, and one that comes after it, have their headers once', async (t) => {
  const [before, after] = await pair(t);
  const backend = await TcpBackend.start(t);
  const introducing = (endpoint: NamedEndpoint): Backends => {
    return { endpoints: [endpoint], affinity: { type: 'None' }, proxyProtocol: 'v1' };
  };
  const ports = [await openPort(before, NAME, []), await openPort(before, 'a/later', [])] as const;
  before.plane.update(NAME, introducing(endpointAt(BLACK_HOLE, 80)));
  before.plane.update('a/later', introducing(backend.endpoint));
  const client = await connectTcp(ports[0]);
  client.send('hello');
  await waitFor('the client to be accepted', () => before.stats(NAME).counters.active === 1);
  await passOn(before.plane, after.plane);
  after.plane.update(NAME, introducing(backend.endpoint));
  await waitFor('the backend to have it', () => backend.peers[0]?.text.endsWith('hello'));
  const later = await connectTcp(ports[1]);
  later.send('later');
  await waitFor('the backend to have it', () => backend.peers[1]?.text.endsWith('later'));
  const line = ({ socket }: typeof client, port: number) =>
    `PROXY TCP4 127.0.0.1 127.0.0.1 ${socket.localPort} ${port}`;
  const received = backend.peers.map(({ text }) => text);
  assert.deepEqual(received, [`${line(client, ports[0])}\r\nhello`, `${line(later, ports[1])}\r\nlater`]);
  client.end();
  later.end();
});

/** Has a connection and a flow, each of which has said "a". */
async function inUse(t: TestContext, rig: FastRig) {
  const { port, client } = await connected(t, rig);
  const udp = await UdpBackend.echo(t);
  const datagrams = await UdpClient.connect(t, await openPort(rig, 'a/udp', [udp.endpoint], 'UDP'));
  await datagrams.ask('a');
  return { udp, port, client, datagrams };
}

test('when the successor dies before it takes over, the predecessor continues everything', async (t) => {
  const before = await fastRig(t);
  const { udp, port, client, datagrams } = await inUse(t, before);
  const parcels = await handOverOf(before.plane).freeze();
  client.send('b');
  datagrams.send('b');
  // The successor got copies, and died.
  closeAll(await sendParcels(parcels));
  handOverOf(before.plane).thaw();
  await client.hasReceived(2);
  await waitFor('the datagram', () => datagrams.texts.includes('b'));
  assert.equal((await exchange(port, 'new')).text, 'new');
  client.end('c');
  assert.equal(await client.finished(), 'end');
  assert.equal(client.text, 'abc');
  assert.equal(udp.flows.length, 1);
});

test('when the successor dies after it took over, its connections are reset, and the ports go on', async (t) => {
  const before = await fastRig(t, { workers: 2 });
  const { port, client, datagrams } = await inUse(t, before);
  const count = openDescriptors();
  closeAll(await sendParcels(await handOverOf(before.plane).freeze()));
  const waiting = exchange(port, 'patience');
  handOverOf(before.plane).recover();
  assert.equal(await client.finished(), 'ECONNRESET');
  assert.equal((await waiting).text, 'patience');
  datagrams.send('b');
  await waitFor('the datagram', () => datagrams.texts.includes('b'));
  const { counters } = before.stats(NAME);
  assert.deepEqual([counters.connections, counters.receivedBytes], [2, 9]);
  await waitFor('what was open to be closed', () => openDescriptors() <= count + 1);
});

test('a successor is at work when each worker has taken a turn', async (t) => {
  const rig = await fastRig(t, { workers: 2 });
  const backend = await TcpBackend.echo(t);
  const port = await openPort(rig, NAME, [backend.endpoint]);
  await handOverOf(rig.plane).freeze();
  const waiting = await connectTcp(port);
  handOverOf(rig.plane).thaw();
  await handOverOf(rig.plane).atWork();
  assert.equal(rig.stats(NAME).counters.active, 1);
  waiting.end();
  assert.equal(await waiting.finished(), 'end');
});

test('a successor is not at work while a worker hangs', async (t) => {
  const { plane, hang } = await faultyRig(t);
  await handOverOf(plane).freeze();
  await hang();
  handOverOf(plane).thaw();
  const first = await Promise.race([handOverOf(plane).atWork(), settle().then(() => 'it waits')]);
  assert.equal(first, 'it waits');
});

describe('a worker that dies while everything is frozen', () => {
  const clock = new ManualClock();

  test('in a successor that adopts: the adoption fails, and the old process goes on with everything', async (t) => {
    const [before, after] = [await fastRig(t), await faultyRig(t, { clock })];
    const { client } = await connected(t, before);
    await handOverOf(after.plane).freeze();
    const copies = await sendParcels(await handOverOf(before.plane).freeze());
    after.order('throw');
    await assert.rejects(handOverOf(after.plane).adopt(copies), /cannot take over a\/b: a worker .* has failed/);
    // As the end of its process does.
    closeAll(copies.slice(1));
    await handOverOf(after.plane).release();
    handOverOf(before.plane).thaw();
    await goesOn(client);
  });

  test('in a successor that has adopted: check() fails, the connections stay untouched, and no worker replaces it', async (t) => {
    const [before, after] = [await fastRig(t), await faultyRig(t, { clock })];
    const { backend, port, client } = await connected(t, before);
    await handOverOf(after.plane).freeze();
    await handOverOf(after.plane).adopt(await sendParcels(await handOverOf(before.plane).freeze()));
    handOverOf(after.plane).check();
    await after.fail();
    const waiting = await connectTcp(port);
    waiting.send('hello');
    clock.advance(100);
    assert.equal(await after.plane.nextPick(NAME, address('127.0.0.1')), undefined, 'nobody answers');
    assert.throws(() => handOverOf(after.plane).check(), /a worker of the data plane has failed/);
    assert.equal(backend.sockets.length, 1);
    await handOverOf(after.plane).release();
    handOverOf(before.plane).thaw();
    client.send('b');
    await Promise.all([client.hasReceived(2), waiting.hasReceived(5)]);
    for (const peer of [client, waiting]) {
      peer.end();
      assert.equal(await peer.finished(), 'end');
    }
  });

  test('in a successor that takes over anyway: its connections are reset, and a new worker serves its ports', async (t) => {
    const [before, after] = [await fastRig(t), await faultyRig(t, { clock })];
    const { port, client } = await connected(t, before);
    await handOverOf(after.plane).freeze();
    await handOverOf(after.plane).adopt(await sendParcels(await handOverOf(before.plane).freeze()));
    await after.fail();
    await handOverOf(before.plane).release();
    handOverOf(after.plane).thaw();
    assert.equal(await client.finished(), 'ECONNRESET');
    clock.advance(100);
    assert.equal((await exchange(port, 'new')).text, 'new');
  });

  test('in the old process: the successor takes over what the worker had described', async (t) => {
    const [before, after] = [await faultyRig(t, { clock }), await fastRig(t)];
    const { client } = await connected(t, before);
    await passOn(before.plane, after.plane, async () => {
      await before.fail();
      clock.advance(60_000);
    });
    await goesOn(client);
  });
});

test('a worker that fails later resets what it has adopted', async (t) => {
  const [before, after] = [await fastRig(t), await faultyRig(t)];
  const { client } = await inUse(t, before);
  await passOn(before.plane, after.plane);
  client.send('b');
  await client.hasReceived(2);
  after.order('throw');
  assert.equal(await client.finished(), 'ECONNRESET');
});

for (const [what, alter, expected] of [
  ['two ports of one id', (_: Parcel, ports: Parcel) => [ports, ports], /two ports have one id/],
  ['a connection of no port', (each: Parcel) => [withPort(each, 9)], /the TCP port 9, which does not exist/],
  ['a connection of a UDP port', (each: Parcel) => [withPort(each, 1)], /the TCP port 1, which does not exist/],
] as const) {
  test(`parcels with ${what} are refused in a sentence`, async (t) => {
    const [before, after] = await pair(t);
    await inUse(t, before);
    await handOverOf(after.plane).freeze();
    const [ports, connections] = (await all(await handOverOf(before.plane).freeze())) as [Parcel, Parcel];
    const copies = await sendParcels([ports, ...alter(connections, ports)]);
    await assert.rejects(handOverOf(after.plane).adopt(copies), expected);
    closeAll(copies.slice(1));
    await handOverOf(after.plane).release();
    handOverOf(before.plane).thaw();
  });
}

/** Its connections, as those of another port. */
function withPort(parcel: Parcel, port: number): Parcel {
  const connections = unpack(parcel).records.filter(({ kind }) => kind !== 'flow');
  const [packed] = pack({ ports: [], records: connections.map((record) => ({ ...record, port })) });
  return packed as Parcel;
}

test('no descriptor is left behind', async (t) => {
  const first = await fastRig(t);
  const { client } = await connected(t, first);
  const second = await fastRig(t);
  const count = openDescriptors();
  await passOn(first.plane, second.plane);
  await waitFor('none to be more', () => openDescriptors() <= count);
  client.end();
  await client.finished();
  await second.plane.close(NAME);
  // The listener, and both ends of both connections.
  await waitFor('all to be closed', () => openDescriptors() <= count - 5);
});

async function exchange(port: number, text: string) {
  const peer = await connectTcp(port);
  peer.end(text);
  await peer.finished();
  return peer;
}
