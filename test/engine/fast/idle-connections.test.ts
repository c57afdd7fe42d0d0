import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import type { Socket } from 'node:net';
import { before, test } from 'node:test';
import type { Counters } from '../../../src/model/data-plane.ts';
import { waitFor } from '../../netns/wait.ts';
import { residentKiB } from '../../support/processes.ts';
import { connectSocket, connectTcp, TcpBackend } from '../../support/tcp.ts';
import { ChildProgram } from './child-program.ts';

/** 9,500 fit into a limit of 20,000 descriptors: `KUP_TEST_CONNECTIONS=9500`. */
const CONNECTIONS = Number(process.env['KUP_TEST_CONNECTIONS'] ?? 2000);

before(() => execFileSync('ip', ['link', 'set', 'lo', 'up']));

interface EngineState {
  readonly active: number;
  readonly descriptors: number;
  readonly heapUsed: number;
  readonly external: number;
}

test(`${CONNECTIONS} idle connections cost two descriptors and at most 2 KiB of heap each, and delay no new one`, async (t) => {
  const backend = await TcpBackend.echo(t);
  const engine = await ChildProgram.start<EngineState>(t, 'in-process-engine.ts', {
    args: [backend.endpoint.port],
    nodeArgs: ['--expose-gc'],
  });
  const latency = async (): Promise<number> => {
    const times: number[] = [];
    for (let i = 0; i < 100; i++) {
      const began = performance.now();
      const client = await connectTcp(engine.port);
      client.send('?');
      await new Promise((resolve) => client.socket.once('data', resolve));
      times.push(performance.now() - began);
      client.end();
    }
    // Of the quicker ones: a busy machine holds up many.
    return times.toSorted((a, b) => a - b)[10] ?? 0;
  };
  await latency();
  const quietMs = await latency();
  await waitFor('these to be over', async () => (await engine.state()).active === 0);
  const before = await engine.state();

  // All have been used: an idle connection is one that has carried something and waits.
  const clients = [];
  for (let i = 0; i < CONNECTIONS; i++) {
    const client = await connectSocket(engine.port);
    client.write('x'.repeat(1 + (i % 3) * 100_000));
    client.resume();
    clients.push(client);
  }
  await waitFor('all to be open', async () => (await engine.state()).active === CONNECTIONS);
  const full = await engine.state();
  const heapEach = (full.heapUsed - before.heapUsed) / CONNECTIONS;
  const externalEach = (full.external - before.external) / CONNECTIONS;
  t.diagnostic(`${Math.round(heapEach)} bytes of heap and ${Math.round(externalEach)} outside it per connection`);
  assert.ok(heapEach <= 2048, `${heapEach} bytes of heap each`);
  assert.ok(externalEach <= 512, `${externalEach} bytes outside the heap each`);
  // Pipes stay for the next bulk, a few for all connections.
  assert.ok(full.descriptors - before.descriptors <= 2 * CONNECTIONS + 32, String(full.descriptors));

  const crowdedMs = await latency();
  t.diagnostic(`a new connection takes ${crowdedMs.toFixed(2)} ms, before ${quietMs.toFixed(2)} ms`);
  assert.ok(crowdedMs < 5 * quietMs + 5, `${crowdedMs} ms instead of ${quietMs} ms`);

  for (const client of clients) client.destroy();
  await waitFor('all to be over', async () => (await engine.state()).active === 0);
  // Some sockets stay for the next connections, for a while.
  await waitFor('descriptors to be closed', async () => (await engine.state()).descriptors <= before.descriptors + 32);
  const after = await engine.state();
  assert.ok(
    after.heapUsed - before.heapUsed < 0.1 * CONNECTIONS * 2048,
    `${after.heapUsed - before.heapUsed} bytes left`,
  );
});

test(`${CONNECTIONS} clients that never say a word cost at most 16 KiB of memory each`, async (t) => {
  const backend = await TcpBackend.echo(t);
  const plane = await ChildProgram.start<{ counters: Counters }>(t, 'small-plane.ts', {
    args: [backend.endpoint.port],
  });
  const clients: Socket[] = [];
  const connect = async (count: number) => {
    for (let left = count; left > 0; left -= 100) {
      clients.push(...(await Promise.all(Array.from({ length: 100 }, () => connectSocket(plane.port)))));
    }
    await waitFor('all to be open', async () => (await plane.state()).counters.active === clients.length, 300_000);
    return residentKiB(plane.pid, 'VmRSS');
  };
  // What the first ones need once is not theirs. V8 grows by megabytes, which is why more than they need is allowed.
  const before = await connect(500);
  const after = await connect(CONNECTIONS);
  const each = (after - before) / CONNECTIONS;
  t.diagnostic(`${each.toFixed(2)} KiB each, ${(after / 1024).toFixed(0)} MiB in all`);
  assert.ok(each <= 16, `${each} KiB each`);
  const talker = await connectTcp(plane.port);
  talker.send('?');
  await waitFor('one who speaks to be answered', () => talker.text === '?');
  for (const client of clients) client.destroy();
});
