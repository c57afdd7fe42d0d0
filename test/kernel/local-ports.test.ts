import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { test } from 'node:test';
import { ListeningSockets, localPorts, parseLocalPorts, receiving } from '../../src/kernel/local-ports.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address as ip } from '../support/model.ts';

test('the range and the reserved ports are read as the kernel writes them', () => {
  const { range, reserved } = parseLocalPorts('32768\t60999\n', '8080,9000-9002\n');
  assert.deepEqual(range, { first: 32_768, last: 60_999 });
  assert.deepEqual([...reserved], [8080, 9000, 9001, 9002]);
  assert.deepEqual([...parseLocalPorts('1024\t65535\n', '\n').reserved], []);
});

test('port 0 is none', () => {
  assert.deepEqual(parseLocalPorts('0\t1000\n', '').range, { first: 1, last: 1000 });
});

test('what cannot be read is the kernel’s default', () => {
  for (const text of [undefined, '', 'many', '1 2 3']) {
    assert.deepEqual(parseLocalPorts(text, undefined), { range: { first: 32_768, last: 60_999 }, reserved: new Set() });
  }
});

test('this machine has one', () => {
  const { first, last } = localPorts().range;
  assert.ok(first >= 1 && last <= 65_535 && first < last);
});

test('listeners are found where they listen, and nothing else is', async (t) => {
  const sockets = new ListeningSockets(new ManualClock());
  const server = createServer().listen(0, '127.0.0.5');
  const everywhere = createServer().listen(0, '0.0.0.0');
  const mapped = createServer().listen(0, '::ffff:127.0.0.5');
  const udp = createSocket('udp4').bind(0, '127.0.0.5');
  await Promise.all([server, everywhere, mapped, udp].map((each) => once(each, 'listening')));
  const { port } = server.address() as AddressInfo;
  const wild = (everywhere.address() as AddressInfo).port;
  const client = connect(port, '127.0.0.5');
  await once(client, 'connect');
  t.after(() => {
    client.destroy();
    server.close();
    everywhere.close();
    mapped.close();
    udp.close();
  });
  assert.equal(sockets.isListening(ip('127.0.0.5'), port, 'TCP'), true);
  assert.equal(sockets.isListening(ip('127.0.0.6'), port, 'TCP'), false);
  assert.equal(sockets.isListening(ip('127.0.0.6'), wild, 'TCP'), true);
  assert.equal(sockets.isListening(ip('::1'), wild, 'TCP'), false);
  assert.equal(sockets.isListening(ip('127.0.0.5'), udp.address().port, 'UDP'), true);
  assert.equal(sockets.isListening(ip('127.0.0.5'), (mapped.address() as AddressInfo).port, 'TCP'), true);
  assert.equal(sockets.isTaken('IPv4', port, 'TCP'), true);
  assert.equal(sockets.isTaken('IPv6', port, 'TCP'), false);
  assert.equal(sockets.isTaken('IPv4', port, 'UDP'), false);
  assert.equal(sockets.isListening(ip('127.0.0.1'), client.localPort ?? 0, 'TCP'), false, 'a connection is none');
});

test('more listeners than one read of the kernel gives are all found', async (t) => {
  // A line has 150 bytes.
  const servers = Array.from({ length: 600 }, () => createServer().listen(0, '127.0.0.5'));
  t.after(() => servers.map((server) => server.close()));
  await Promise.all(servers.map((server) => once(server, 'listening')));
  const sockets = new ListeningSockets(new ManualClock());
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  assert.deepEqual(ports.filter((port) => !sockets.isListening(ip('127.0.0.5'), port, 'TCP')), []); // biome-ignore format: short
});

test('an answer holds for a second', async () => {
  const clock = new ManualClock();
  const sockets = new ListeningSockets(clock);
  const server = createServer().listen(0, '127.0.0.5');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const isListening = () => sockets.isListening(ip('127.0.0.5'), port, 'TCP');
  assert.equal(isListening(), true);
  server.close();
  await once(server, 'close');
  assert.equal(isListening(), true);
  clock.advance(1_000);
  assert.equal(isListening(), false);
});

test('the kernel’s spelling of IPv6 is understood', () => {
  const rest = '00000000:00000000 00:00000000 00000000     0        0 1717 1';
  const local = 'B80D0120000000000000000001000000';
  const table = [
    '  sl  local_address                         remote_address                        st tx_queue rx_queue',
    `   0: ${local}:0050 00000000000000000000000000000000:0000 0A ${rest}`,
    `   1: ${local}:0051 B80D0120000000000000000002000000:0050 01 ${rest}`,
    'nonsense',
  ].join('\n');
  assert.deepEqual([...receiving(table, 'TCP')], [{ local: `${local}:0050`, inode: '1717' }]);
});
