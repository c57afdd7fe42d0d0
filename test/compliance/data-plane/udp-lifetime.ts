import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { endpointName } from '../../../src/model/endpoint.ts';
import { waitFor } from '../../netns/wait.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { backends, endpointsOf, type RigFactory, SETTLED_MS } from './harness.ts';
import { drop, endpointsBehindSmallMtu } from './network.ts';

export function udpLifetimeTests(makeRig: RigFactory): void {
  test('a flow ends after its time of silence, and the next datagram begins another', async (t) => {
    const rig = await makeRig(t, { udpIdleTimeoutMs: 300 });
    const backend = await UdpBackend.echo(t);
    const { name, port } = await rig.open('UDP', [backend.endpoint]);
    const client = await UdpClient.connect(t, port);
    const began = performance.now();
    await client.ask('one');
    assert.equal(rig.counters(name).connections, 1);
    await waitFor('the flow to end', () => rig.counters(name).active === 0);
    assert.ok(performance.now() - began >= 295, 'not before its time');
    // Its port is free, and held from now on, or the kernel might give it to the next flow.
    const holder = createSocket('udp4').bind(backend.flows[0], '127.0.0.1');
    t.after(() => holder.close());
    await once(holder, 'listening');
    assert.equal(await client.ask('two'), 'two');
    assert.equal(rig.counters(name).connections, 2);
    assert.equal(backend.flows.length, 2);
  });

  for (const side of ['client', 'backend'] as const) {
    test(`datagrams of the ${side} keep a flow alive`, async (t) => {
      const rig = await makeRig(t, { udpIdleTimeoutMs: 2000 });
      const backend = await UdpBackend.start(t, (datagram, reply) => {
        if (String(datagram) === '?') reply('first');
      });
      const client = await UdpClient.connect(t, (await rig.open('UDP', [backend.endpoint])).port);
      await client.ask('?');
      for (let i = 0; i < 10; i++) {
        await sleep(250);
        if (side === 'client') client.send('more');
        else backend.push(backend.flows[0] ?? 0, `push ${i}`);
      }
      const arrived = side === 'client' ? backend.arrivals : client.received;
      await waitFor('all to arrive', () => arrived.length === 11);
      assert.equal(backend.flows.length, 1);
    });
  }

  for (const [title, udpIdleTimeoutMs, udpFirstReplyTimeoutMs] of [
    ['waits longer for its first reply', 50, 60_000],
    ['waits for its first reply at least for the idle timeout', 5000, 10],
  ] as const) {
    test(`a flow ${title}`, async (t) => {
      const rig = await makeRig(t, { udpIdleTimeoutMs, udpFirstReplyTimeoutMs });
      const backend = await UdpBackend.start(t, (_datagram, reply) => {
        setTimeout(() => reply('late'), 350);
      });
      const { name, port } = await rig.open('UDP', [backend.endpoint]);
      assert.equal(await (await UdpClient.connect(t, port)).ask('?'), 'late');
      await waitFor('the flow to end after the idle timeout', () => rig.counters(name).active === 0);
    });
  }

  test('a flow without any reply ends as well', async (t) => {
    const rig = await makeRig(t, { udpIdleTimeoutMs: 50, udpFirstReplyTimeoutMs: 300 });
    const backend = await UdpBackend.start(t);
    const { name, port } = await rig.open('UDP', [backend.endpoint]);
    const client = await UdpClient.connect(t, port);
    const began = performance.now();
    client.send('?');
    // Before the datagram arrives, the flow may not be counted yet.
    await waitFor('the datagram to arrive', () => backend.arrivals.length === 1);
    await waitFor('the flow to end', () => rig.counters(name).active === 0);
    assert.ok(performance.now() - began >= 295, 'not before its time');
  });

  test('an endpoint that refuses is reported and loses the flow, which another one gets', async (t) => {
    const rig = await makeRig(t);
    const [dead, alive] = [await UdpBackend.start(t), await UdpBackend.named(t, 'alive')];
    await dead.stop();
    const { name, port } = await rig.open('UDP', [dead.endpoint, alive.endpoint]);
    // One of two flows in a row meets the dead one.
    const clients = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
    for (const client of clients) assert.equal(await client.ask('?'), 'alive');
    await waitFor('the refused flow to end', () => rig.counters(name).active === 2);
    assert.ok(rig.events.dialFailed.length > 0);
    for (const { err, ...event } of rig.events.dialFailed) {
      assert.deepEqual(event, { name, backend: endpointName(dead.endpoint), reason: 'refused' });
      assert.equal(err, 'ECONNREFUSED (connection refused)');
    }
    // An engine reports a failure before it counts it.
    await waitFor('it to be counted', () => rig.counters(name).failedRefused === rig.events.dialFailed.length);
  });

  test('affinity does not pin a client to an endpoint that refuses', async (t) => {
    const rig = await makeRig(t);
    const named = await Promise.all(['a', 'b', 'c'].map((name) => UdpBackend.named(t, name)));
    const { name, port } = await rig.open('UDP', endpointsOf(named), 60);
    const client = await UdpClient.connect(t, port);
    const first = await client.ask('?');
    await named['abc'.indexOf(first)]?.stop();
    client.send('refused');
    await waitFor('the flow to end', () => rig.counters(name).active === 0);
    const second = await client.ask('?');
    assert.notEqual(second, first);
    for (let i = 0; i < 3; i++) assert.equal(await (await UdpClient.connect(t, port)).ask('?'), second);
  });

  test('a datagram that a local rule stops harms no other', async (t) => {
    const rig = await makeRig(t);
    const backend = await UdpBackend.echo(t);
    const { name, port } = await rig.open('UDP', [backend.endpoint], 60);
    const client = await UdpClient.connect(t, port);
    await client.ask('one');
    const match = ['-p', 'udp', '--dport', String(backend.endpoint.port), '-m', 'length', '--length', '1000:'];
    drop(t, 'OUTPUT', ...match);
    client.send(Buffer.alloc(2000));
    assert.equal(await client.ask('two'), 'two');
    assert.equal(rig.counters(name).connections, 1, 'the flow is the same');
    assert.deepEqual(rig.events.dialFailed, []);
  });

  test('a datagram that is too big for a link on the way harms no other: the flow stays with its endpoint', async (t) => {
    const behind = await endpointsBehindSmallMtu(t);
    const rig = await makeRig(t);
    for (const endpoints of [behind.IPv4, behind.IPv6]) {
      const { name, port } = await rig.open('UDP', endpoints);
      const client = await UdpClient.connect(t, port);
      const datagram = 'x'.repeat(1400);
      // Where the kernel does not fragment for us, the first tells it of the link.
      await waitFor('an answer', () => {
        client.send(datagram);
        return client.received.length > 0;
      });
      for (let i = 0; i < 10; i++) await client.ask(datagram);
      assert.equal(new Set(client.texts).size, 1, `one endpoint: ${client.texts}`);
      assert.equal(rig.counters(name).connections, 1);
    }
    assert.deepEqual(rig.events.dialFailed, []);
  });

  test('a flow whose endpoint leaves ends at once, the others go on', async (t) => {
    const rig = await makeRig(t);
    const [leaving, staying] = [await UdpBackend.named(t, 'leaving'), await UdpBackend.named(t, 'staying')];
    const { name, port } = await rig.open('UDP', [leaving.endpoint, staying.endpoint]);
    const clients = [await UdpClient.connect(t, port), await UdpClient.connect(t, port)];
    const answers = await Promise.all(clients.map((client) => client.ask('?')));
    assert.deepEqual(answers.toSorted(), ['leaving', 'staying']);
    rig.plane.update(name, backends([staying.endpoint]));
    await waitFor('the flow to end', () => rig.counters(name).active === 1);
    for (const client of clients) assert.equal(await client.ask('?'), 'staying');
    assert.equal(staying.flows.length, 2, 'the flow that could stay is the same');
  });

  test('closing a Service port ends its flows', async (t) => {
    const rig = await makeRig(t);
    const backend = await UdpBackend.echo(t);
    const { name, port } = await rig.open('UDP', [backend.endpoint]);
    const client = await UdpClient.connect(t, port);
    await client.ask('one');
    await rig.plane.close(name);
    client.send('two');
    backend.push(backend.flows[0] ?? 0, 'too late');
    await sleep(SETTLED_MS);
    assert.deepEqual(client.texts, ['one']);
    assert.deepEqual(backend.texts, ['one']);
  });

  async function fill(t: TestContext, port: number, count: number): Promise<UdpClient[]> {
    const clients: UdpClient[] = [];
    for (let i = 0; i < count; i++) {
      const client = await UdpClient.connect(t, port);
      await client.ask('?');
      clients.push(client);
    }
    return clients;
  }

  test('a full Service port refuses new flows, keeps the old and recovers', async (t) => {
    const rig = await makeRig(t, { udpMaxFlowsPerService: 3, udpIdleTimeoutMs: 4000 });
    const backend = await UdpBackend.echo(t);
    const { name, port } = await rig.open('UDP', [backend.endpoint]);
    const old = await fill(t, port, 3);
    const late = await UdpClient.connect(t, port);
    late.send('one more');
    await waitFor('the refusal', () => rig.counters(name).limited === 1);
    assert.deepEqual(await rig.reported('limited', 1), [{ name, client: '127.0.0.1', limit: 'flows-per-service' }]);
    for (const client of old) assert.equal(await client.ask('still'), 'still');
    assert.equal(late.received.length, 0);
    const other = await rig.open('UDP', [backend.endpoint]);
    await fill(t, other.port, 3);
    await waitFor('the old ones to end', () => rig.counters(name).active === 0);
    assert.equal(await late.ask('now'), 'now');
  });

  test('the bound on all flows holds across Service ports', async (t) => {
    const rig = await makeRig(t, { udpMaxFlows: 3 });
    const backend = await UdpBackend.echo(t);
    const [one, two] = [await rig.open('UDP', [backend.endpoint]), await rig.open('UDP', [backend.endpoint])];
    await fill(t, one.port, 2);
    await fill(t, two.port, 1);
    const late = await UdpClient.connect(t, two.port);
    late.send('one more');
    await waitFor('the refusal', () => rig.counters(two.name).limited === 1);
    assert.deepEqual(await rig.reported('limited', 1), [{ name: two.name, client: '127.0.0.1', limit: 'flows-total' }]);
    await rig.plane.close(one.name);
    assert.equal(await late.ask('now'), 'now');
  });

  test('what a closed Service port had is free for the others at once', async (t) => {
    const rig = await makeRig(t, { udpMaxFlows: 16 });
    const backend = await UdpBackend.echo(t);
    const [one, two] = [await rig.open('UDP', [backend.endpoint]), await rig.open('UDP', [backend.endpoint])];
    // Where workers share a port, some of these are another worker's.
    await fill(t, one.port, 12);
    const clients = await Promise.all(Array.from({ length: 12 }, () => UdpClient.connect(t, two.port)));
    await rig.plane.close(one.name);
    const answers = await Promise.all(clients.map((client) => client.ask('?')));
    assert.equal(answers.length, 12);
  });
}
