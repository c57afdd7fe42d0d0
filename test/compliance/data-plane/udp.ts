import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointsOf, type RigFactory, SETTLED_MS } from './harness.ts';
import { ip, NODE_ADDRESSES, narrowPorts } from './network.ts';

/** The largest that fits an IPv4 packet. */
const MOST_BYTES = 65_507;

export function udpTests(makeRig: RigFactory): void {
  for (const size of [0, 1, 1472, 4097, MOST_BYTES]) {
    test(`a datagram of ${size} bytes goes there and back unchanged`, async (t) => {
      const rig = await makeRig(t);
      const backend = await UdpBackend.echo(t);
      const { port } = await rig.open('UDP', [backend.endpoint]);
      const client = await UdpClient.connect(t, port);
      // The first begins the flow, the second finds it.
      for (let i = 0; i < 2; i++) {
        const datagram = randomBytes(size);
        client.send(datagram);
        const reply = await waitFor('the reply', () => client.received[i]);
        assert.ok(reply.equals(datagram), 'the bytes differ');
        assert.ok(backend.arrivals[i]?.datagram.equals(datagram), 'the bytes differ at the backend');
      }
    });
  }

  test('each client address and port is a flow of its own, which keeps its endpoint', async (t) => {
    const rig = await makeRig(t);
    const named = await Promise.all(['a', 'b', 'c'].map((name) => UdpBackend.named(t, name)));
    const { name, port } = await rig.open('UDP', endpointsOf(named));
    const answers: string[] = [];
    for (let i = 0; i < 6; i++) {
      const client = await UdpClient.connect(t, port);
      const answer = await client.ask('?');
      answers.push(answer);
      for (let again = 0; again < 3; again++) assert.equal(await client.ask('?'), answer);
    }
    assert.deepEqual(answers.slice(0, 3).toSorted(), ['a', 'b', 'c'], 'flows take turns');
    assert.deepEqual(answers.slice(3), answers.slice(0, 3));
    for (const backend of named) assert.equal(backend.flows.length, 2, 'one source port for each flow');
    assert.equal(rig.counters(name).connections, 6);
  });

  test('the same port of two client addresses makes two flows', async (t) => {
    const rig = await makeRig(t);
    const backend = await UdpBackend.echo(t);
    const { port } = await rig.open('UDP', [backend.endpoint]);
    const one = await UdpClient.connect(t, port, { from: '127.0.0.1' });
    const two = createSocket('udp4').bind(one.socket.address().port, '127.0.0.2');
    t.after(() => two.close());
    await once(two, 'listening');
    two.send('two', port, '127.0.0.1');
    const [reply] = await once(two, 'message');
    assert.equal(String(reply), 'two');
    assert.equal(await one.ask('one'), 'one');
    assert.deepEqual(one.texts, ['one']);
    assert.equal(backend.flows.length, 2);
  });

  test('with ClientIP affinity all flows of a client go to one endpoint', async (t) => {
    const rig = await makeRig(t);
    const named = await Promise.all(['a', 'b', 'c'].map((name) => UdpBackend.named(t, name)));
    const { port } = await rig.open('UDP', endpointsOf(named), 60);
    const answers = new Set<string>();
    for (let i = 0; i < 4; i++) answers.add(await (await UdpClient.connect(t, port)).ask('?'));
    assert.equal(answers.size, 1);
    const other = await UdpClient.connect(t, port, { from: '127.0.0.2' });
    assert.ok(!answers.has(await other.ask('?')));
  });

  test('a reply leaves from the address to which the client sent, also for one client of several addresses', async (t) => {
    const rig = await makeRig(t);
    const { port } = await rig.open('UDP', [(await UdpBackend.echo(t)).endpoint]);
    const client = createSocket('udp4').bind(0, '127.0.0.1');
    t.after(() => client.close());
    await once(client, 'listening');
    const replies: string[] = [];
    client.on('message', (datagram, remote) => replies.push(`${datagram} from ${remote.address}`));
    const addresses = ['127.0.0.1', ...NODE_ADDRESSES];
    for (const to of addresses) client.send(`to ${to}`, port, to);
    await waitFor('all replies', () => replies.length === addresses.length);
    assert.deepEqual(replies.toSorted(), addresses.map((to) => `to ${to} from ${to}`).toSorted());
  });

  test('an address that appears on the node is served, one that goes does no harm', async (t) => {
    const rig = await makeRig(t);
    const { port } = await rig.open('UDP', [(await UdpBackend.echo(t)).endpoint]);
    const late = '10.99.0.9';
    for (let round = 0; round < 2; round++) {
      ip('address', 'add', `${late}/24`, 'dev', 'node0');
      const client = await UdpClient.connect(t, port, { to: late });
      await waitFor('a reply from the new address', () => {
        client.send('anybody?');
        return client.received.length > 0;
      });
      ip('address', 'delete', `${late}/24`, 'dev', 'node0');
      await sleep(1200);
      assert.equal(await (await UdpClient.connect(t, port)).ask('still'), 'still');
    }
    assert.deepEqual(rig.events.listenerFailed, []);
  });

  test('the first datagrams of a flow arrive complete and in order', async (t) => {
    const rig = await makeRig(t);
    const backend = await UdpBackend.echo(t);
    const { port } = await rig.open('UDP', [backend.endpoint]);
    const client = await UdpClient.connect(t, port);
    const sent = Array.from({ length: 50 }, (_, i) => `datagram ${i}`);
    for (const text of sent) client.send(text);
    await waitFor('all replies', () => client.received.length === sent.length);
    assert.deepEqual(backend.texts, sent);
    assert.deepEqual(client.texts, sent);
  });

  test('a burst that a socket buffer of the default size could not hold arrives complete', async (t) => {
    const rig = await makeRig(t);
    const backend = await UdpBackend.start(t);
    const { port } = await rig.open('UDP', [backend.endpoint]);
    const client = await UdpClient.connect(t, port);
    // Sent in one go. The kernel counts about 2.3 KiB for each, and by default takes 208 KiB.
    for (let i = 0; i < 150; i++) client.send(Buffer.alloc(1000));
    await waitFor('all to arrive', () => backend.arrivals.length === 150);
  });

  test('flows have local ports of their own, also when few are left', async (t) => {
    const rig = await makeRig(t);
    if (rig.dialsBeginAnew) return t.skip('a successor needs ports for its self-check');
    const backend = await UdpBackend.echo(t);
    const { port } = await rig.open('UDP', [backend.endpoint]);
    const clients = await Promise.all(Array.from({ length: 8 }, () => UdpClient.connect(t, port)));
    // Two more for those that the listener and the backend may have.
    narrowPorts(t, 47_000, 47_011);
    await Promise.all(clients.map(async (client, i) => assert.equal(await client.ask(`${i}`), `${i}`)));
    assert.equal(new Set(backend.arrivals.map(({ from }) => from)).size, clients.length);
  });

  test('many flows at once get their own datagrams back, and nobody else’s', async (t) => {
    const rig = await makeRig(t);
    const servers = [await UdpBackend.echo(t), await UdpBackend.echo(t)];
    const { name, port } = await rig.open('UDP', endpointsOf(servers));
    const clients = await Promise.all(Array.from({ length: 200 }, () => UdpClient.connect(t, port)));
    for (let round = 0; round < 5; round++) {
      await Promise.all(
        clients.map(async (client) => {
          const token = randomBytes(16).toString('hex');
          assert.equal(await client.ask(token), token);
        }),
      );
    }
    for (const client of clients) assert.equal(client.received.length, 5);
    assert.equal(rig.counters(name).connections, 200);
  });

  test('without endpoints datagrams are dropped and reported, until there are some', async (t) => {
    const rig = await makeRig(t);
    const { name, port } = await rig.open('UDP', []);
    const client = await UdpClient.connect(t, port);
    client.send('nobody there');
    await waitFor('it to be counted', () => rig.counters(name).noEndpoints === 1);
    // Its next send fails while the refusal waits to be read.
    await waitFor('the client to be refused', () => client.refusals === 1);
    assert.deepEqual(await rig.reported('clientRefused', 1), [{ name, client: '127.0.0.1', reason: 'no-endpoints' }]);
    assert.deepEqual([rig.counters(name).connections, rig.counters(name).active], [0, 0]);
    await rig.update(name, backends([(await UdpBackend.named(t, 'here now')).endpoint]));
    assert.equal(await client.ask('?'), 'here now');
    await sleep(SETTLED_MS);
    assert.deepEqual(client.texts, ['here now']);
  });
}
