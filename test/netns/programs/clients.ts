import { createHash, randomBytes } from 'node:crypto';
import { createSocket, type Socket as DatagramSocket, type RemoteInfo } from 'node:dgram';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { payload, payloadChecksum } from './payload.ts';

export interface Target {
  readonly host: string;
  readonly port: number;
  /** Local address; the kernel chooses one otherwise. */
  readonly from?: string;
  readonly localPort?: number;
}

/** Far beyond the time that anything takes, even on a busy machine. */
const DEADLINE_MS = 30_000;
/** The same for a transfer of up to 1 GiB with its checksums. */
const BULK_DEADLINE_MS = 300_000;

/** One HTTP request on a connection of its own. */
export async function request(target: Target & { timeoutMs?: number }): Promise<{ name: string; ms: number }> {
  const begun = performance.now();
  const socket = await dial(target, target.timeoutMs ?? DEADLINE_MS);
  socket.write('GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n');
  const reply = await readAll(socket, target.timeoutMs ?? DEADLINE_MS);
  const body = /^HTTP\/1\.1 200 OK\r\n(?:.+\r\n)*\r\n(.+)$/.exec(reply.toString('latin1'))?.[1];
  if (body === undefined) throw Object.assign(new Error(`no answer: "${reply}"`), { code: 'NO_ANSWER' });
  return { name: body, ms: performance.now() - begun };
}

export interface Tally {
  /** Answers per backend. */
  readonly names: Record<string, number>;
  /** Failures per error code. */
  readonly failures: Record<string, number>;
  readonly ms: number[];
}

export async function requests(args: Target & { count: number; concurrency?: number }): Promise<Tally> {
  const tally: Tally = { names: {}, failures: {}, ms: [] };
  let left = args.count;
  await Promise.all(
    Array.from({ length: args.concurrency ?? 1 }, async () => {
      while (left-- > 0) await count(tally, args);
    }),
  );
  return tally;
}

const loads = new Map<number, { running: boolean; readonly tally: Tally; readonly done: Promise<unknown> }>();
let nextHandle = 1;

/** Of a caller between two requests. Without it, clients take the cores from what is tested. */
const PAUSE_MS = 10;

/** Sends requests from `concurrency` callers, until {@link stopLoad}. */
export function startLoad(args: Target & { concurrency: number }): number {
  const tally: Tally = { names: {}, failures: {}, ms: [] };
  const caller = async () => {
    while (load.running) {
      await count(tally, args);
      await sleep(PAUSE_MS);
    }
  };
  const load = { running: true, tally, done: Promise.resolve() as Promise<unknown> };
  load.done = Promise.all(Array.from({ length: args.concurrency }, caller));
  loads.set(nextHandle, load);
  return nextHandle++;
}

export function loadSoFar({ load }: { load: number }): Tally {
  return loads.get(load)!.tally;
}

export async function stopLoad({ load }: { load: number }): Promise<Tally> {
  const running = loads.get(load)!;
  running.running = false;
  await running.done;
  loads.delete(load);
  return running.tally;
}

interface OpenConnection {
  readonly socket: Socket;
  readonly chunks: Buffer[];
  ended: boolean;
  /** Error code, or `closed`; undefined while it is open. */
  outcome: string | undefined;
}

const connections = new Map<number, OpenConnection>();

export async function open(target: Target): Promise<{ connection: number; localPort: number }> {
  const socket = await dial(target, DEADLINE_MS);
  const connection: OpenConnection = { socket, chunks: [], ended: false, outcome: undefined };
  socket.on('data', (chunk) => connection.chunks.push(chunk));
  socket.on('end', () => {
    connection.ended = true;
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    connection.outcome = error.code ?? error.message;
  });
  socket.on('close', () => {
    connection.outcome ??= 'closed';
  });
  connections.set(nextHandle, connection);
  return { connection: nextHandle++, localPort: socket.localPort! };
}

export async function openMany(args: Target & { count: number }): Promise<number[]> {
  const opened = await Promise.all(Array.from({ length: args.count }, () => open(args)));
  return opened.map(({ connection }) => connection);
}

export function write({ connection, text }: { connection: number; text: string }): void {
  connections.get(connection)!.socket.write(text);
}

/** Half-close: nothing more will be sent. */
export function end({ connection }: { connection: number }): void {
  connections.get(connection)!.socket.end();
}

export function reset({ connection }: { connection: number }): void {
  connections.get(connection)!.socket.resetAndDestroy();
}

/** Waits for this number of bytes, and returns them. */
export async function read(args: { connection: number; bytes: number; timeoutMs?: number }): Promise<string> {
  const connection = connections.get(args.connection)!;
  const enough = () => connection.chunks.reduce((sum, chunk) => sum + chunk.length, 0) >= args.bytes;
  await until(() => enough() || connection.ended || connection.outcome !== undefined, args.timeoutMs);
  const all = Buffer.concat(connection.chunks);
  connection.chunks.splice(0, connection.chunks.length, all.subarray(args.bytes));
  return all.subarray(0, args.bytes).toString('latin1');
}

/** Waits for the other side's end, its reset, or the close; gives what came before. */
export async function finish(args: {
  connection: number;
  timeoutMs?: number;
}): Promise<{ text: string; how: string; ms: number }> {
  const connection = connections.get(args.connection)!;
  const begun = performance.now();
  await until(() => connection.ended || connection.outcome !== undefined, args.timeoutMs);
  const how = connection.outcome ?? 'ended';
  connection.socket.destroy();
  connections.delete(args.connection);
  return { text: Buffer.concat(connection.chunks).toString('latin1'), how, ms: performance.now() - begun };
}

/** How each of these connections stands: `open`, `ended` (the other side half-closed), `closed` or an error code. */
export function states({ list }: { list: readonly number[] }): string[] {
  return list.map((handle) => {
    const connection = connections.get(handle)!;
    return connection.outcome ?? (connection.ended ? 'ended' : 'open');
  });
}

/** Sends the payload to a `sink`, half-closes, and compares the checksum in its answer. */
export async function upload(args: Target & { bytes: number }): Promise<{ intact: boolean; ms: number }> {
  const begun = performance.now();
  const socket = await dial(args, DEADLINE_MS);
  const hash = createHash('sha256');
  for (const block of payload(args.bytes)) {
    hash.update(block);
    if (!socket.write(Buffer.from(block))) await once(socket, 'drain');
  }
  socket.end();
  const reply = await readAll(socket, BULK_DEADLINE_MS);
  return { intact: reply.toString() === `${args.bytes} ${hash.digest('hex')}`, ms: performance.now() - begun };
}

/** Fetches the payload from a `source` and checks it. */
export async function download(args: Target & { bytes: number }): Promise<{ intact: boolean; ms: number }> {
  const begun = performance.now();
  const socket = await dial(args, DEADLINE_MS);
  const hash = createHash('sha256');
  socket.on('data', (chunk) => hash.update(chunk));
  socket.write(`${args.bytes}\n`);
  await once(socket, 'end', { signal: AbortSignal.timeout(BULK_DEADLINE_MS) });
  socket.end();
  return { intact: hash.digest('hex') === payloadChecksum(args.bytes), ms: performance.now() - begun };
}

interface OpenSocket {
  readonly socket: DatagramSocket;
  readonly received: { readonly data: Buffer; readonly from: RemoteInfo }[];
}

const sockets = new Map<number, OpenSocket>();

/** `family` 6 for targets of IPv6 alone. */
export async function udpOpen(args: {
  from?: string;
  port?: number;
  family?: 4 | 6;
}): Promise<{ socket: number; port: number }> {
  const socket = createSocket(args.family === 6 ? 'udp6' : 'udp4');
  const opened: OpenSocket = { socket, received: [] };
  socket.on('error', () => {});
  socket.on('message', (data, from) => opened.received.push({ data, from }));
  socket.bind(args.port ?? 0, args.from ?? (args.family === 6 ? '::' : '0.0.0.0'));
  await once(socket, 'listening');
  socket.setRecvBufferSize(4 << 20);
  socket.setSendBufferSize(4 << 20);
  sockets.set(nextHandle, opened);
  return { socket: nextHandle++, port: socket.address().port };
}

export async function udpSend(args: { socket: number; host: string; port: number; text: string }): Promise<void> {
  await send(sockets.get(args.socket)!.socket, Buffer.from(args.text), args);
}

const streams = new Map<number, NodeJS.Timeout>();

/** Sends from this socket again and again, whatever comes back, until {@link udpClose}. */
export function startUdpStream(args: { socket: number; host: string; port: number; everyMs: number }): void {
  const { socket } = sockets.get(args.socket)!;
  const timer = setInterval(() => socket.send('sample', args.port, args.host, () => {}), args.everyMs);
  streams.set(args.socket, timer);
}

export async function udpReceive(args: {
  socket: number;
  timeoutMs?: number;
}): Promise<{ text: string; from: string } | undefined> {
  const { received } = sockets.get(args.socket)!;
  await until(() => received.length > 0, args.timeoutMs ?? DEADLINE_MS).catch(() => undefined);
  const first = received.shift();
  return first && { text: first.data.toString(), from: `${first.from.address}:${first.from.port}` };
}

/** Sends one datagram and waits for the answer; undefined when none comes. */
export async function udpAsk(args: {
  socket: number;
  host: string;
  port: number;
  text: string;
  timeoutMs?: number;
}): Promise<{ text: string; from: string } | undefined> {
  await udpSend(args);
  return udpReceive(args);
}

/** Sends random bytes to a `udp-echo` and compares what comes back. */
export async function udpEcho(args: {
  socket: number;
  host: string;
  port: number;
  bytes: number;
}): Promise<{ intact: boolean; from: string }> {
  const { socket, received } = sockets.get(args.socket)!;
  const data = randomBytes(args.bytes);
  await send(socket, data, args);
  await until(() => received.length > 0);
  const { data: reply, from } = received.shift()!;
  return { intact: reply.equals(data), from: `${from.address}:${from.port}` };
}

/**
 * Makes `count` flows, each from its own port with one datagram to a `udp-name`. Returns the answers per backend. All
 * ports stay open to the end: the kernel chooses them at random, and a port that it chose again would continue its old
 * flow.
 */
export async function udpFlows(args: {
  host: string;
  port: number;
  count: number;
  timeoutMs?: number;
}): Promise<Record<string, number>> {
  const { host, port, timeoutMs } = args;
  const names: Record<string, number> = {};
  const held: number[] = [];
  try {
    for (let index = 0; index < args.count; index++) {
      const { socket } = await udpOpen({ family: host.includes(':') ? 6 : 4 });
      held.push(socket);
      const reply = await udpAsk({ socket, host, port, text: 'who', ...(timeoutMs !== undefined && { timeoutMs }) });
      const name = reply?.text.split(' ')[0] ?? 'none';
      names[name] = (names[name] ?? 0) + 1;
    }
  } finally {
    for (const socket of held) udpClose({ socket });
  }
  return names;
}

export function udpClose({ socket }: { socket: number }): void {
  clearInterval(streams.get(socket));
  streams.delete(socket);
  sockets.get(socket)!.socket.close();
  sockets.delete(socket);
}

export async function httpGet({ url }: { url: string }): Promise<{ status: number; type: string; body: string }> {
  const response = await fetch(url, { signal: AbortSignal.timeout(DEADLINE_MS) });
  return { status: response.status, type: response.headers.get('content-type') ?? '', body: await response.text() };
}

async function count(tally: Tally, target: Target): Promise<void> {
  try {
    const { name, ms } = await request(target);
    tally.names[name] = (tally.names[name] ?? 0) + 1;
    tally.ms.push(ms);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? String(error);
    tally.failures[code] = (tally.failures[code] ?? 0) + 1;
    // A refused connection fails at once: without a pause one bad second would count as thousands.
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function dial(target: Target, timeoutMs: number): Promise<Socket> {
  const socket = connect({
    host: target.host,
    port: target.port,
    allowHalfOpen: true,
    noDelay: true,
    ...(target.from === undefined ? {} : { localAddress: target.from }),
    ...(target.localPort === undefined ? {} : { localPort: target.localPort }),
  });
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(timeoutMs) });
  } catch (error) {
    socket.destroy();
    throw error;
  }
  return socket;
}

/** To the other side's end; then closes this side too. */
function readAll(socket: Socket, timeoutMs: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    const timer = setTimeout(() => {
      reject(Object.assign(new Error('no end of the answer'), { code: 'TIMEOUT' }));
      socket.destroy();
    }, timeoutMs);
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('end', () => {
      socket.end();
      resolve(Buffer.concat(chunks));
    });
    socket.on('error', reject);
    socket.on('close', () => {
      clearTimeout(timer);
      reject(new Error('closed without an end'));
    });
  });
}

function send(socket: DatagramSocket, data: Buffer, to: { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.send(data, to.port, to.host, (error) => (error ? reject(error) : resolve()));
  });
}

async function until(condition: () => boolean, timeoutMs = DEADLINE_MS): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!condition()) {
    if (performance.now() > deadline) throw Object.assign(new Error('nothing happened in time'), { code: 'TIMEOUT' });
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
