import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Agent, request } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';

/**
 * - `truncated`: the first half of the real answer, and then a proper end.
 * - `broken-off`: the same, and then a reset.
 * - a number: this status.
 */
export type Misdeed = 'truncated' | 'broken-off' | number;

interface Watch {
  readonly path: string;
  readonly response: ServerResponse;
}

let server: Server | undefined;
const plans = new Map<string, Misdeed[]>();
const watches = new Set<Watch>();
const sockets = new Set<Socket>();
let met = 0;
let compressed = 0;

/** Forwards plain HTTP to an API server, and misbehaves on request. Returns its port on 127.0.0.1. */
export async function meddle({ url, caFile }: { url: string; caFile: string }): Promise<number> {
  const agent = new Agent({ ca: readFileSync(caFile), keepAlive: true });
  server = createServer((incoming, response) => {
    handle({ incoming, response, url, agent, misdeed: nextMisdeed(incoming.url ?? '') });
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server!.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

/**
 * The next requests for paths with each of these beginnings are answered so, one after the other; open ones are broken
 * off.
 */
export function misbehave({ paths, misdeeds }: { paths: readonly string[]; misdeeds: readonly Misdeed[] }): void {
  for (const path of paths) plans.set(path, [...misdeeds]);
  for (const socket of sockets) socket.resetAndDestroy();
}

/** How many requests have met a misdeed so far. */
export function misdeedsMet(): number {
  return met;
}

/** How many answers the server has compressed so far. */
export function answersCompressed(): number {
  return compressed;
}

/** Behaves from now on, and counts anew. */
export function behave(): void {
  plans.clear();
  met = 0;
}

/** Writes this, `repeat` times over, into every open watch. Gives how many watches there were. */
export function inject({ text, repeat = 1 }: { text: string; repeat?: number }): number {
  for (const { response } of watches) for (let index = 0; index < repeat; index++) response.write(text);
  return watches.size;
}

function nextMisdeed(url: string): Misdeed | undefined {
  const misdeed = [...plans].find(([path]) => url.startsWith(path))?.[1].shift();
  if (misdeed !== undefined) met++;
  return misdeed;
}

interface Exchange {
  readonly incoming: IncomingMessage;
  readonly response: ServerResponse;
  readonly url: string;
  readonly agent: Agent;
  readonly misdeed: Misdeed | undefined;
}

function handle(exchange: Exchange): void {
  const { incoming, response, misdeed } = exchange;
  response.on('error', () => {});
  if (typeof misdeed === 'number') {
    response.writeHead(misdeed, { 'content-type': 'application/json' });
    const status = { kind: 'Status', apiVersion: 'v1', status: 'Failure', message: 'a misdeed', code: misdeed };
    response.end(JSON.stringify(status));
  } else {
    forward(exchange, incoming.headers);
  }
}

function forward({ incoming, response, url, agent, misdeed }: Exchange, headers: IncomingMessage['headers']): void {
  const { host: _, ...rest } = headers;
  const upstream = request(`${url}${incoming.url}`, { method: incoming.method!, headers: rest, agent }, (answer) => {
    const { 'content-type': type = 'text/plain', 'content-encoding': encoding } = answer.headers;
    if (encoding === 'gzip') compressed++;
    response.writeHead(answer.statusCode!, {
      'content-type': type,
      ...(encoding !== undefined && { 'content-encoding': encoding }),
    });
    response.flushHeaders();
    const watch = { path: incoming.url!, response };
    if (incoming.url!.includes('watch=1')) watches.add(watch);
    response.on('close', () => watches.delete(watch));
    answer.on('error', () => response.destroy());
    if (misdeed === 'truncated' || misdeed === 'broken-off') truncate(answer, response, misdeed);
    else answer.pipe(response);
  });
  upstream.on('error', () => response.destroy());
  response.on('close', () => upstream.destroy());
  incoming.pipe(upstream);
}

function truncate(answer: IncomingMessage, response: ServerResponse, how: 'truncated' | 'broken-off'): void {
  answer.once('data', (chunk: Buffer) => {
    answer.destroy();
    response.write(chunk.subarray(0, chunk.length / 2), () => {
      if (how === 'truncated') response.end();
      else response.socket?.resetAndDestroy();
    });
  });
}
