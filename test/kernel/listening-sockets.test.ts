import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { test } from 'node:test';
import { ListeningSockets, receiving } from '../../src/kernel/listening-sockets.ts';
import { parseAddress } from '../../src/model/address.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { address as ip } from '../rules/fixtures.ts';

test('listeners are found where they listen, and nothing else is', async (t) => {
  const sockets = new ListeningSockets(new ManualClock());
  const server = createServer().listen(0, '127.0.0.5');
  const everywhere = createServer().listen(0, '0.0.0.0');
  const udp = createSocket('udp4').bind(0, '127.0.0.5');
  await Promise.all([server, everywhere, udp].map((each) => once(each, 'listening')));
  const { port } = server.address() as AddressInfo;
  const wild = (everywhere.address() as AddressInfo).port;
  const client = connect(port, '127.0.0.5');
  await once(client, 'connect');
  t.after(() => {
    client.destroy();
    server.close();
    everywhere.close();
    udp.close();
  });
  assert.equal(sockets.isListening(ip('127.0.0.5'), port, 'TCP'), true);
  assert.equal(sockets.isListening(ip('127.0.0.6'), port, 'TCP'), false);
  assert.equal(sockets.isListening(ip('127.0.0.6'), wild, 'TCP'), true);
  assert.equal(sockets.isListening(ip('::1'), wild, 'TCP'), false);
  assert.equal(sockets.isListening(ip('127.0.0.5'), udp.address().port, 'UDP'), true);
  assert.equal(sockets.isListening(ip('127.0.0.1'), client.localPort ?? 0, 'TCP'), false, 'a connection is none');
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
  assert.ok(parseAddress('2001:db8::1'));
  const table = [
    '  sl  local_address                         remote_address                        st tx_queue rx_queue',
    '   0: B80D0120000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000',
    '   1: B80D0120000000000000000001000000:0051 B80D0120000000000000000002000000:0050 01 00000000:00000000 00:00000000',
    'nonsense',
  ].join('\n');
  assert.deepEqual([...receiving(table, 'TCP')], ['B80D0120000000000000000001000000:0050']);
});
