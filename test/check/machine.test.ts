import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { type SocketPort, thisMachine } from '../../src/check/machine.ts';
import { systemClock } from '../../src/util/system-clock.ts';
import { freePort } from '../http/free-port.ts';
import { address } from '../support/model.ts';

const machine = thisMachine(async () => ({ outcome: 'missing' }), systemClock);
const LOOPBACK = address('127.0.0.1');

test('ports at which programs receive are found with their processes, over both protocols', async () => {
  const server = createServer().listen(await freePort(), '127.0.0.1');
  await once(server, 'listening');
  const socket = createSocket('udp6').bind(0);
  await once(socket, 'listening');
  const { port } = server.address() as { port: number };
  const ports: readonly SocketPort[] = [`${port}/TCP`, `${socket.address().port}/UDP`];
  assert.ok(ports.every((each) => machine.listeners().has(each)));
  const owners = machine.ownersOf(new Set(ports));
  assert.deepEqual(
    ports.map((each) => owners.get(each)),
    ports.map(() => `node (${process.pid})`),
  );
  assert.equal(await machine.tryToBind({ address: LOOPBACK, port }), 'EADDRINUSE');
  await Promise.all([new Promise((resolve) => server.close(resolve)), new Promise<void>((done) => socket.close(done))]);
});

test('checking a free address leaves it free', async () => {
  const port = await freePort();
  for (let time = 0; time < 2; time++) assert.equal(await machine.tryToBind({ address: LOOPBACK, port }), undefined);
  assert.equal(await machine.tryToBind({ address: address('192.0.2.99'), port }), 'EADDRNOTAVAIL');
});

test('neighbours are other processes', () => {
  const pids = machine.neighbours().map(({ pid }) => pid);
  assert.ok(pids.includes(process.ppid) && !pids.includes(process.pid));
});
