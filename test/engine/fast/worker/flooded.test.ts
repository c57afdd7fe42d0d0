import '../../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, test } from 'node:test';
import { close } from '../../../../src/sys/descriptor.ts';
import { Memory } from '../../../../src/sys/memory.ts';
import { AF_INET, connect, SOCK_DGRAM, send, socket } from '../../../../src/sys/socket.ts';
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

  const flood = must('socket', socket(AF_INET, SOCK_DGRAM));
  t.after(() => close(flood));
  must('connect', connect(flood, encodeSocketAddress('127.0.0.1', udp.localPort)));
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
