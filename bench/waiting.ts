import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { createFastDataPlane } from '../src/engine/fast/create.ts';
import { createNodeDataPlane, loadKernelSockets } from '../src/engine/node/node-data-plane.ts';
import { endProcess } from '../src/kernel/process.ts';
import type { Backends } from '../src/model/data-plane.ts';
import { systemClock } from '../src/util/system-clock.ts';
import { endpointAt, OPTIONS, textObserver } from '../test/compliance/data-plane/harness.ts';
import { RecordingLog } from '../test/fakes/recording-log.ts';
import { listenSpec } from '../test/support/listen-spec.ts';

/*
 * `scripts/bench waiting [CLIENTS] [fast|node]`: clients that wait for an endpoint: what each costs in memory, and how
 * long after the endpoint's arrival they are served. Each has sent a byte, and is served when it comes back. Data
 * plane, echo and clients are a process each.
 */

const ROUNDS = 5;

type Order = { readonly endpoint?: number } | 'measure';
interface Measured {
  readonly waiting: number;
  readonly kib: number;
  /** Of processors, so far. */
  readonly cpuMs: number;
}

const [, file = '', role = '1000', engine = 'fast'] = process.argv;
if (role === 'plane') await runPlane();
else if (role === 'echo') await runEcho();
else await main(Number(role));

async function main(clients: number): Promise<void> {
  const [plane, echo] = [fork(file, ['plane', engine]), fork(file, ['echo'])];
  const [[{ port }], [{ port: endpoint }]] = await Promise.all([once(plane, 'message'), once(echo, 'message')]);
  // The first round makes the memory that all later ones use again.
  const { kib } = await round(plane, { port, endpoint, clients });
  const rounds: Awaited<ReturnType<typeof round>>[] = [];
  for (let i = 0; i < ROUNDS; i++) rounds.push(await round(plane, { port, endpoint, clients }));
  const of = (key: 'firstMs' | 'lastMs' | 'cpuMs') =>
    rounds
      .map((each) => each[key])
      .toSorted((a, b) => a - b)
      .map((each) => each.toFixed(0))
      .join(', ');
  console.log(`${clients} waiting clients, engine ${engine}, ${ROUNDS} rounds:`);
  console.log(`first served after (ms)  ${of('firstMs')}`);
  console.log(`all served after (ms)    ${of('lastMs')}`);
  console.log(`our processor time (ms)  ${of('cpuMs')}`);
  console.log(`memory of each (KiB)     ${kib.toFixed(1)}`);
  for (const each of [plane, echo]) each.disconnect();
}

async function round(
  plane: ChildProcess,
  { port, endpoint, clients }: { readonly port: number; readonly endpoint: number; readonly clients: number },
) {
  const before = await measured(plane);
  const sockets: Socket[] = [];
  while (sockets.length < clients) {
    const some = Array.from({ length: Math.min(100, clients - sockets.length) }, () => connect(port, '127.0.0.1'));
    await Promise.all(some.map((socket) => once(socket, 'connect')));
    for (const socket of some) socket.write('.');
    sockets.push(...some);
  }
  let now = await measured(plane);
  while (now.waiting < clients) now = await measured(plane);
  const kib = (now.kib - before.kib) / clients;
  const served = sockets.map((socket) => once(socket, 'data').then(() => performance.now()));
  const began = performance.now();
  plane.send({ endpoint } satisfies Order);
  const times = await Promise.all(served);
  const cpuMs = (await measured(plane)).cpuMs - now.cpuMs;
  const [firstMs, lastMs] = [Math.min(...times) - began, Math.max(...times) - began];
  plane.send({} satisfies Order);
  for (const socket of sockets) socket.resetAndDestroy();
  return { firstMs, lastMs, cpuMs, kib };
}

async function measured(plane: ChildProcess): Promise<Measured> {
  const answer = once(plane, 'message');
  plane.send('measure' satisfies Order);
  const [value] = await answer;
  return value as Measured;
}

async function runPlane(): Promise<void> {
  const setup = { observer: textObserver([]), clock: systemClock };
  const plane =
    engine === 'node'
      ? createNodeDataPlane({ ...setup, options: OPTIONS, random: Math.random, kernel: await loadKernelSockets() })
      : await createFastDataPlane({ ...setup, options: { ...OPTIONS, workers: 1 }, log: new RecordingLog() });
  const spec = listenSpec({ name: 'bench/waiting', protocol: 'TCP', address: '127.0.0.1', port: 0 });
  const backends = (endpoint: number | undefined): Backends => ({
    endpoints: endpoint === undefined ? [] : [endpointAt('127.0.0.1', endpoint)],
    affinity: { type: 'None' },
    waiting: { forEndpointsMs: 60_000, whileFullMs: 0, max: 65_536 },
  });
  const port = await plane.open(spec, backends(undefined));
  process.on('message', (order: Order) => {
    if (order !== 'measure') {
      plane.update(spec.id, backends(order.endpoint));
      return;
    }
    const { waiting = 0 } = plane.statsOf(spec.id)?.counters ?? {};
    const { user, system } = process.cpuUsage();
    const kib = process.memoryUsage.rss() / 1024;
    process.send?.({ waiting, kib, cpuMs: (user + system) / 1000 } satisfies Measured);
  });
  process.on('disconnect', () => void endProcess(0));
  process.send?.({ port });
}

async function runEcho(): Promise<void> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
  });
  server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 });
  await once(server, 'listening');
  process.on('disconnect', () => void endProcess(0));
  process.send?.({ port: (server.address() as AddressInfo).port });
}
