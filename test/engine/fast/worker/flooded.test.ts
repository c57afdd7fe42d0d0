import '../../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, type TestContext, test } from 'node:test';
import type { Engine } from '../../../../src/engine/fast/worker/engine.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { AF_INET, connect, SOCK_DGRAM, SOCK_STREAM, send, socket } from '../../../../src/sys/socket.ts';
import { encodeSocketAddress } from '../../../../src/sys/socket-address.ts';
import { must } from '../../../../src/sys/sys-error.ts';
import { drop } from '../../../compliance/data-plane/network.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { waitFor } from '../../../netns/wait.ts';
import { connectTcp, TcpBackend } from '../../../support/tcp.ts';
import { UdpBackend } from '../../../support/udp.ts';
import { engineRig } from './engine-rig.ts';

/* One Service port has more than its worker can read. Others must not notice. */

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

/** A socket that has begun to connect, and is closed after the test. */
function connected(t: TestContext, type: number, port: number): number {
  const fd = must('socket', socket(AF_INET, type));
  t.after(() => close(fd));
  connect(fd, encodeSocketAddress('127.0.0.1', port));
  return fd;
}

const PORTS = Array.from({ length: 20 }, (_, i) => i + 1);

/** Turns until `count` has counted so many. The most that one turn has added. */
async function mostPerTurn(engine: Engine, count: () => number, expected: number): Promise<number> {
  let most = 0;
  await waitFor('all of them', () => {
    const before = count();
    engine.turn(0);
    most = Math.max(most, count() - before);
    return count() === expected;
  });
  return most;
}

test('all listeners together accept so many clients in a turn', async (t) => {
  const { engine, listen } = engineRig(t);
  const listeners = PORTS.map((port) => listen({}, port));
  for (const { localPort } of listeners) for (let i = 0; i < 70; i++) connected(t, SOCK_STREAM, localPort);
  const accepted = () => listeners.reduce((sum, { counters }) => sum + counters.read().connections, 0);
  const most = await mostPerTurn(engine, accepted, 20 * 70);
  assert.ok(most <= 128, `${most} in one turn`);
});

test('all UDP ports together read so many datagrams in a turn', async (t) => {
  const { engine, listen } = engineRig(t);
  const sink = await UdpBackend.start(t);
  const listeners = PORTS.map((port) => listen({ protocol: 'UDP', endpoints: [sink.endpoint] }, port));
  const byte = new Memory(1);
  for (const { localPort } of listeners) {
    const fd = connected(t, SOCK_DGRAM, localPort);
    for (let i = 0; i < 100; i++) send(fd, byte, 0, 1);
  }
  const read = () => listeners.reduce((sum, { counters }) => sum + counters.read().receivedBytes, 0);
  const most = await mostPerTurn(engine, read, 20 * 100);
  // The first turn of many is longer: it does not know yet how many they are.
  assert.ok(most <= 1000, `${most} in one turn`);
});

test('while a UDP port is flooded, dials of other Service ports time out in time', async (t) => {
  const clock = new ManualClock();
  const { engine, listen } = engineRig(t, {}, { clock });
  const sink = await UdpBackend.start(t);
  const udp = listen({ protocol: 'UDP', endpoints: [sink.endpoint] }, 1);
  const backend = await TcpBackend.echo(t);
  const tcp = listen({ endpoints: [backend.endpoint] }, 2);
  drop(t, 'INPUT', '-p', 'tcp', '--dport', String(backend.endpoint.port));
  const client = await connectTcp(tcp.localPort);
  t.after(() => client.reset());
  await waitFor('it to be dialled for', () => {
    engine.turn(0);
    return tcp.counters.read().active === 1;
  });
  clock.advance(60_000);

  const flood = connected(t, SOCK_DGRAM, udp.localPort);
  const byte = new Memory(1);
  const overflow = (): void => {
    // More than one turn reads.
    for (let i = 0; i < 100; i++) send(flood, byte, 0, 1);
  };
  let turns = 0;
  for (; tcp.counters.read().failedTimeout === 0 && turns < 1000; turns++) {
    overflow();
    engine.turn(0);
  }
  assert.ok(turns < 10, `${turns} turns`);
  assert.ok(udp.counters.read().receivedBytes >= turns * 60, 'the flood was read all the while');
});
