import '../../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, test } from 'node:test';
import { openListenSocket } from '../../../../src/engine/fast/listen-socket.ts';
import { close } from '../../../../src/sys/descriptor.ts';
import { ManualClock } from '../../../fakes/manual-clock.ts';
import { waitFor } from '../../../netns/wait.ts';
import { listenSpec } from '../../../support/listen-spec.ts';
import { connectTcp, TcpBackend } from '../../../support/tcp.ts';
import { UdpBackend, UdpClient } from '../../../support/udp.ts';
import { engineRig } from './engine-rig.ts';

/*
 * A standstill: of the process (SIGSTOP), of the thread or of the machine. Time passes, and what comes meanwhile waits in the
 * kernel. Here the clock is the test's, and the engine turns only when told.
 */

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

test('after a standstill datagrams that came in time are delivered, by the flows that were there', async (t) => {
  const clock = new ManualClock();
  const { engine, open } = engineRig(t, { udpIdleTimeoutMs: 250 }, { clock });
  const backend = await UdpBackend.start(t);
  const { fd, localPort } = openListenSocket(
    listenSpec({ name: 'a/udp', protocol: 'UDP', address: '127.0.0.1', port: 0 }),
  );
  t.after(() => close(fd));
  const counters = open(1, fd, { protocol: 'UDP', endpoints: [backend.endpoint] });
  const clients = await Promise.all(Array.from({ length: 300 }, () => UdpClient.connect(t, localPort)));
  /** All that `send` causes is in the kernel when the time has passed; only then the worker goes on. */
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

test('after a standstill handshakes that were over in time are connections, and none counts as timed out', async (t) => {
  const clock = new ManualClock();
  const { engine, open } = engineRig(t, {}, { clock });
  const backend = await TcpBackend.echo(t);
  const { fd, localPort } = openListenSocket(
    listenSpec({ name: 'a/tcp', protocol: 'TCP', address: '127.0.0.1', port: 0 }),
  );
  t.after(() => close(fd));
  const counters = open(1, fd, { endpoints: [backend.endpoint] });
  const iptables = (what: string) =>
    execFileSync('iptables', [
      '-w',
      what,
      'INPUT',
      '-p',
      'tcp',
      '--dport',
      String(backend.endpoint.port),
      '-j',
      'DROP',
    ]);
  iptables('-A');
  const clients = await Promise.all(Array.from({ length: 400 }, () => connectTcp(localPort)));
  for (const client of clients) t.after(() => client.reset());
  await waitFor('all to be dialled for', () => {
    engine.turn(0);
    return counters.read().active === 400;
  });
  iptables('-D');
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
