import '../../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, test } from 'node:test';
import { drop } from '../../../compliance/data-plane/network.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { waitFor } from '../../../netns/wait.ts';
import { connectTcp, TcpBackend } from '../../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../../support/udp.ts';
import { engineRig } from './engine-rig.ts';

/*
 * The process (SIGSTOP), the thread or the machine stands still: time passes, and packets wait in the kernel. Here the
 * test advances the clock and decides when the engine turns.
 */

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

test('after a standstill the worker delivers datagrams that came in time, by the flows that were there', async (t) => {
  const clock = new ManualClock();
  const { engine, listen } = engineRig(t, { udpIdleTimeoutMs: 250 }, { clock });
  const backend = await UdpBackend.start(t);
  const { localPort, counters } = listen({ protocol: 'UDP', endpoints: [backend.endpoint] });
  const clients = await Promise.all(Array.from({ length: 300 }, () => UdpClient.connect(t, localPort)));
  /** The worker goes on only when all that `send` sends is in the kernel and the time has passed. */
  const afterStandstill = async (what: string, send: () => Promise<unknown>, arrived: () => boolean): Promise<void> => {
    await send();
    clock.advance(400);
    await waitFor(what, () => {
      engine.turn(0);
      return arrived();
    });
  };
  const ask = () => Promise.all(clients.map((client) => client.delivered('?')));
  const answer = () => Promise.all(backend.flows.map((flow) => backend.pushed(flow, '!')));
  const answers = (count: number) => clients.every(({ received }) => received.length === count);
  for (const round of [1, 2]) {
    await afterStandstill(`${round}: questions`, ask, () => backend.arrivals.length === round * 300);
    await afterStandstill(`${round}: answers`, answer, () => answers(round));
  }
  assert.equal(counters.read().connections, 300);
  assert.equal(backend.flows.length, 300);
});

test('after a standstill handshakes that were complete in time become connections, and no dial counts as timed out', async (t) => {
  const clock = new ManualClock();
  const { engine, listen } = engineRig(t, {}, { clock });
  const backend = await TcpBackend.echo(t);
  const { localPort, counters } = listen({ endpoints: [backend.endpoint] });
  const admit = drop(t, 'INPUT', '-p', 'tcp', '--dport', String(backend.endpoint.port));
  const clients = await Promise.all(Array.from({ length: 400 }, () => connectTcp(localPort)));
  for (const client of clients) t.after(() => client.reset());
  await waitFor('all to be dialled for', () => {
    engine.turn(0);
    return counters.read().active === 400;
  });
  admit();
  // The kernel sends each SYN again after a second.
  await waitFor('the handshakes', () => backend.sockets.length === 400);
  clock.advance(400);
  await waitFor('all to be connected', () => {
    engine.turn(0);
    return counters.read().connects >= 400;
  });
  const { connects, failedTimeout, retries } = counters.read();
  assert.deepEqual({ connects, failedTimeout, retries }, { connects: 400, failedTimeout: 0, retries: 0 });
});
