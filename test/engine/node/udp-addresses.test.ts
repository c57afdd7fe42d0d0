import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { before, type TestContext, test } from 'node:test';
import { backends } from '../../compliance/data-plane/harness.ts';
import { buildNetwork } from '../../compliance/data-plane/network.ts';
import { listenSpec } from '../../support/listen-spec.ts';
import { UdpBackend, UdpClient } from '../../support/udp.ts';
import { manualRig } from './rig.ts';

const SPEC = listenSpec({ name: 'test/udp', protocol: 'UDP', address: '0.0.0.0', port: 0 });
const POLL_MS = 1000;

before(buildNetwork);

async function bind(t: TestContext, address: string, port: number): Promise<Socket> {
  const socket = createSocket('udp4').bind(port, address);
  await once(socket, 'listening');
  t.after(() => {
    // Some tests close it themselves.
    try {
      socket.close();
    } catch {}
  });
  return socket;
}

/** As if the address were nobody's. */
async function isFree(t: TestContext, address: string, port: number): Promise<boolean> {
  return bind(t, address, port).then(
    (socket) => {
      socket.close();
      return true;
    },
    () => false,
  );
}

test('all addresses get one port, even if the kernel first proposes ports that are taken', async (t) => {
  writeFileSync('/proc/sys/net/ipv4/ip_local_port_range', '40000 40003');
  t.after(() => writeFileSync('/proc/sys/net/ipv4/ip_local_port_range', '32768 60999'));
  // Of four, so that 16 proposals in a row of the kernel's are not this one: it draws them.
  await bind(t, '127.0.0.2', 40000);
  const { plane } = manualRig(t, {}, () => ['127.0.0.1', '127.0.0.2', '127.0.0.1', '::1']);
  for (let i = 0; i < 20; i++) {
    const port = await plane.open(SPEC, backends([]));
    assert.ok(port > 40000 && port <= 40003);
    for (const address of ['127.0.0.1', '127.0.0.2']) assert.equal(await isFree(t, address, port), false);
    await plane.close(SPEC.name);
    for (const address of ['127.0.0.1', '127.0.0.2']) assert.ok(await isFree(t, address, port));
  }
  for (const port of [40001, 40002, 40003]) await bind(t, '127.0.0.2', port);
  await assert.rejects(plane.open(SPEC, backends([])), { code: 'address-in-use' });
  for (const port of [40000, 40001, 40002, 40003]) assert.ok(await isFree(t, '127.0.0.1', port));
});

test('an address that left between reading and binding is skipped, but one must remain', async (t) => {
  const addresses = ['192.0.2.1', '127.0.0.1'];
  const { plane } = manualRig(t, {}, () => addresses);
  const port = await plane.open(SPEC, backends([(await UdpBackend.echo(t)).endpoint]));
  assert.equal(await (await UdpClient.connect(t, port)).ask('hello'), 'hello');
  await plane.close(SPEC.name);
  addresses.pop();
  await assert.rejects(plane.open(SPEC, backends([])), { code: 'address-unavailable' });
});

test('the sockets follow the addresses of the node; a taken port and a failed reading are retried', async (t) => {
  let read: () => readonly string[] = () => ['127.0.0.1'];
  const { plane, clock, events } = manualRig(t, {}, () => read());
  const port = await plane.open(SPEC, backends([(await UdpBackend.echo(t)).endpoint]));
  const active = (): number | undefined => [...plane.stats()][0]?.counters.active;
  const poll = () => clock.advance(POLL_MS);

  read = () => {
    throw new Error('no descriptor left');
  };
  poll();
  assert.equal(await isFree(t, '127.0.0.1', port), false, 'a failed reading changes nothing');

  const other = await bind(t, '127.0.0.2', port);
  read = () => ['127.0.0.1', '127.0.0.2'];
  poll();
  await new Promise(setImmediate);
  assert.match(events.join(), /^listener failed: [^,]*EADDRINUSE[^,]*$/);
  other.close();
  poll();
  assert.equal(await (await UdpClient.connect(t, port)).ask('one'), 'one');
  assert.equal(await (await UdpClient.connect(t, port, { to: '127.0.0.2' })).ask('two'), 'two');
  assert.equal(active(), 2);

  read = () => ['127.0.0.1'];
  // No further than to the next reading, or the flows would end of silence.
  clock.advance(POLL_MS - (clock.now() % POLL_MS));
  assert.ok(await isFree(t, '127.0.0.2', port));
  assert.equal(await isFree(t, '127.0.0.1', port), false);
  assert.equal(events.length, 1);
});

test('closing and shutting down leave no timer behind', async (t) => {
  const { plane, clock } = manualRig(t);
  const port = await plane.open(SPEC, backends([(await UdpBackend.echo(t)).endpoint]));
  await (await UdpClient.connect(t, port)).ask('hello');
  assert.equal(clock.pendingTimers, 2, 'the flow’s and the address poll’s');
  await plane.close(SPEC.name);
  assert.equal(clock.pendingTimers, 1);
  await plane.shutdown();
  assert.equal(clock.pendingTimers, 0);
});
