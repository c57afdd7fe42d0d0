import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Counters } from '../../../src/model/data-plane.ts';
import type { LogLine } from '../../fakes/recording-log.ts';
import { waitFor } from '../../netns/wait.ts';
import { connectTcp, TcpBackend, type TcpPeer } from '../../support/tcp.ts';
import { ChildProgram, type StartOptions } from './child-program.ts';

interface PlaneState {
  readonly events: readonly string[];
  readonly log: readonly LogLine[];
  readonly counters: Counters;
  /** Missing when there is not even one to look with. */
  readonly descriptors?: number;
  readonly cpuMs: number;
}

function startPlane(t: TestContext, options: StartOptions): Promise<ChildProgram<PlaneState>> {
  return ChildProgram.start(t, 'small-plane.ts', options);
}

const CLIENTS = 100;

const LIMITS: readonly [how: string, wrapper: readonly string[], lower: (pid: number) => void, told: RegExp][] = [
  ['known from the start', ['sh', '-c', 'ulimit -n 128; exec "$@"', 'sh'], () => {}, /^limited: descriptors$/],
  [
    ...(['met by surprise', []] as const),
    (pid) => execFileSync('prlimit', ['--pid', String(pid), '--nofile=112']),
    /^listener failed: out of file descriptors: EMFILE/,
  ],
];

for (const [how, wrapper, lower, told] of LIMITS) {
  test(`out of descriptors, a limit ${how}: clients wait, none is lost, and accepting resumes by itself`, async (t) => {
    const backend = await TcpBackend.echo(t);
    const plane = await startPlane(t, { args: [backend.endpoint.port], wrapper });
    const idle = (await plane.state()).descriptors ?? 0;
    lower(plane.pid);
    const clients = await Promise.all(Array.from({ length: CLIENTS }, () => connectTcp(plane.port)));
    for (const client of clients) client.send('?');
    const served = (): TcpPeer[] => clients.filter(({ receivedBytes }) => receivedBytes > 0);
    const full = await waitFor('as many to be served as there are descriptors for', async () => {
      const count = served().length;
      await sleep(500);
      return count >= 15 && served().length === count && (await plane.state()).counters.pauses > 0 && count;
    });
    assert.ok(full < 60, `${full} of ${CLIENTS} are served`);
    const before = await plane.state();
    await sleep(1000);
    const after = await plane.state();
    assert.equal(served().length, full);
    assert.ok(after.cpuMs - before.cpuMs < 200, `it spins: ${after.cpuMs - before.cpuMs} ms of a second`);
    assert.match(after.events[0] ?? '', told);
    assert.ok(after.counters.pauses >= 1);
    assert.deepEqual(after.log, []);

    const [one] = served();
    one?.send('!');
    await waitFor('those who are in to be served all along', () => one?.text === '?!');

    for (let left = clients; left.length > 0; left = left.filter(({ isOver }) => !isOver)) {
      for (const client of left) if (client.receivedBytes > 0 && !client.socket.writableEnded) client.end();
      await sleep(20);
    }
    assert.equal(served().length, CLIENTS);
    assert.deepEqual([...new Set(clients.map(({ error }) => error))], [undefined]);
    await waitFor('all descriptors to be free', async () => ((await plane.state()).descriptors ?? Infinity) <= idle);
    const { counters } = await plane.state();
    assert.deepEqual([counters.connections, counters.connects, counters.active], [CLIENTS, CLIENTS, 0]);
  });
}

test('out of descriptors, the machine as a whole: clients wait, none is lost, and accepting resumes by itself', async (t) => {
  const backend = await TcpBackend.echo(t);
  const wrapper = ['strace', '-f', '-qq', '-o', '/dev/null', '-e', 'inject=accept4:error=ENFILE:when=10..40'];
  const plane = await startPlane(t, { args: [backend.endpoint.port], wrapper });
  const clients = await Promise.all(Array.from({ length: 50 }, () => connectTcp(plane.port)));
  for (const client of clients) client.send('?');
  await waitFor('all to be served', () => clients.every(({ text }) => text === '?'));
  const { events, counters, log } = await plane.state();
  assert.match(events[0] ?? '', /^listener failed: out of file descriptors/);
  assert.ok(counters.pauses >= 2, `${counters.pauses} pauses`);
  assert.deepEqual([counters.connections, counters.active, log], [50, 50, []]);
  assert.deepEqual([...new Set(clients.map(({ error }) => error))], [undefined]);
});

test('an idle data plane takes no processor time', async (t) => {
  const plane = await startPlane(t, { args: [1] });
  await sleep(1500);
  const before = (await plane.state()).cpuMs;
  await sleep(3000);
  const spentMs = (await plane.state()).cpuMs - before;
  assert.ok(spentMs < 150, `${spentMs} ms in 3 s`);
});
