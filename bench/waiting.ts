import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
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
 *
 * Memory is what four times as many more take, garbage not counted: the first ones bring code and the rooms of the
 * allocators, which all later ones use.
 */

const ROUNDS = 5;
const MORE = 4;
const COLLECTIONS = 4;
const COLLECTION_MS = 100;

type Order = { readonly endpoint?: number } | 'measure' | 'collect and measure';
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
  const [plane, echo] = [fork(file, ['plane', engine], { execArgv: ['--expose-gc'] }), fork(file, ['echo'])];
  const [[{ port }], [{ port: endpoint }]] = await Promise.all([once(plane, 'message'), once(echo, 'message')]);
  const kib = await memoryOfEach(plane, { port, clients });
  // The first round brings code that all later ones use.
  await round(plane, { port, endpoint, clients });
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
  const sockets = await crowd(port, clients);
  const before = await allWait(plane, clients);
  const served = sockets.map((socket) => once(socket, 'data').then(() => performance.now()));
  const began = performance.now();
  plane.send({ endpoint } satisfies Order);
  const times = await Promise.all(served);
  const cpuMs = (await measured(plane)).cpuMs - before.cpuMs;
  const [firstMs, lastMs] = [Math.min(...times) - began, Math.max(...times) - began];
  plane.send({} satisfies Order);
  for (const socket of sockets) socket.resetAndDestroy();
  return { firstMs, lastMs, cpuMs };
}

async function memoryOfEach(
  plane: ChildProcess,
  { port, clients }: { readonly port: number; readonly clients: number },
) {
  const first = await crowd(port, clients);
  await allWait(plane, clients);
  const before = await measured(plane, 'collect and measure');
  const more = await crowd(port, MORE * clients);
  await allWait(plane, (1 + MORE) * clients);
  const after = await measured(plane, 'collect and measure');
  for (const socket of [...first, ...more]) socket.resetAndDestroy();
  await allWait(plane, 0);
  return (after.kib - before.kib) / more.length;
}

async function crowd(port: number, clients: number): Promise<readonly Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < clients) {
    const some = Array.from({ length: Math.min(100, clients - sockets.length) }, () => connect(port, '127.0.0.1'));
    await Promise.all(some.map((socket) => once(socket, 'connect')));
    for (const socket of some) socket.write('.');
    sockets.push(...some);
  }
  return sockets;
}

async function allWait(plane: ChildProcess, clients: number): Promise<Measured> {
  let now = await measured(plane);
  while (now.waiting !== clients) now = await measured(plane);
  return now;
}

async function measured(plane: ChildProcess, order: Order = 'measure'): Promise<Measured> {
  const answer = once(plane, 'message');
  plane.send(order);
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
  process.on('message', async (order: Order) => {
    if (typeof order === 'object') {
      plane.update(spec.id, backends(order.endpoint));
      return;
    }
    if (order === 'collect and measure') await collect();
    const { waiting = 0 } = plane.statsOf(spec.id)?.counters ?? {};
    const { user, system } = process.cpuUsage();
    const kib = process.memoryUsage.rss() / 1024;
    process.send?.({ waiting, kib, cpuMs: (user + system) / 1000 } satisfies Measured);
  });
  process.on('disconnect', () => void endProcess(0));
  process.send?.({ port });
}

/** The first time only finds what is free; later ones give it back to the kernel, beside the main thread. */
async function collect(): Promise<void> {
  for (let i = 0; i < COLLECTIONS; i++) {
    globalThis.gc?.();
    await sleep(COLLECTION_MS);
  }
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
