import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { endpointName } from '../model/endpoint.ts';
import { READ_TIMEOUT_MS } from '../operate/control/protocol.ts';
import { listenAt } from '../operate/control/socket-file.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { isLoopback, refusalOf } from './http-origin.ts';

/*
 * The HTTP server of every address and socket that the program serves, with bounds and deadlines. What changes
 * something has routes of its own, for POST. Bodies of requests are not read: parameters are in the query.
 */

export interface HttpRequest {
  readonly query: URLSearchParams;
  /** Aborted when the client has left, or has its answer. */
  readonly signal: AbortSignal;
  /** It came over loopback or a Unix socket. */
  readonly isLocal: boolean;
}

export interface HttpResponse {
  readonly status: number;
  readonly contentType: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** A long one comes in parts, each made when the client has taken the last one. */
  readonly body: string | AsyncIterable<string>;
  /** The client must take the whole answer in time (the default), each part, or neither. */
  readonly deadline?: 'whole' | 'part' | 'none';
}

/** When it throws or rejects, the answer is 500. */
export type Handler = (request: HttpRequest) => HttpResponse | Promise<HttpResponse>;

/** By path, without the query. */
export type Routes = Pick<ReadonlyMap<string, Handler>, 'get'>;

export const TEXT = 'text/plain; charset=utf-8';
export const JSON_TYPE = 'application/json';

export function textResponse(status: number, body: string): HttpResponse {
  return { status, contentType: TEXT, body };
}

/** A sentence, below /v1 as JSON: docs/api.md promises that of every error. */
function problem(path: string, status: number, sentence: string): HttpResponse {
  if (!path.startsWith('/v1/')) return textResponse(status, `${sentence}\n`);
  return { status, contentType: JSON_TYPE, body: `${JSON.stringify({ error: sentence })}\n` };
}

/**
 * Answers `busy` while `max` requests to the handlers together are under way, each until its client has the answer or
 * has left, and the handler is done.
 */
export function atOnce(max: number, busy: HttpResponse): (handler: Handler) => Handler {
  let count = 0;
  return (handler) => async (request) => {
    if (count >= max) return busy;
    count++;
    let isDone = false;
    const release = () => {
      if (isDone && request.signal.aborted) count--;
    };
    request.signal.addEventListener('abort', release);
    try {
      return await handler(request);
    } finally {
      isDone = true;
      release();
    }
  };
}

/**
 * `address`: `undefined` is every address of the machine, of both families. `port`: 0 lets the kernel choose. `path`: a
 * Unix socket that only root and the program's own user can open.
 */
export type Place = { readonly address: string | undefined; readonly port: number } | { readonly path: string };

export interface HttpServerOptions {
  /** For the log: "healthz", "metrics", "control". */
  readonly name: string;
  readonly place: Place;
  /** What to do about a place that cannot be had; ends the log's sentence. */
  readonly hint: string;
  /** `--bind-address-hard-fail`: called when the address cannot be bound; there is no retry then. */
  readonly onUnbindable?: () => void;
  /** At a time: {@link MAX_CONNECTIONS}, or fewer in tests. */
  readonly maxConnections?: number;
  /** `operators`: not for web sites that make an operator's browser ask; see {@link refusalOf}. */
  readonly audience: 'anybody' | 'operators';
  readonly routes: Routes;
  /** What changes something. */
  readonly posts?: Routes;
  /** The line for a client that sends a line of JSON in place of HTTP. */
  readonly answerToJson?: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** As upstream's `wait.Until(fn, 5*time.Second, …)` around both servers (`cmd/kube-proxy/app/server.go`). */
const BIND_RETRY_MS = 5_000;

/**
 * A client that is slow to send its request, or to read the answer, loses its connection, so that a few of them cannot
 * keep the kubelet's probe out. Ten seconds are Prometheus' own limit on a scrape.
 */
const REQUEST_TIMEOUT_MS = 3_000;
const RESPONSE_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_TIMEOUT_MS = 10_000;

/**
 * Kubelets, load balancers and Prometheus ask from a few places, each with a connection or two. Beyond it, a new
 * connection replaces the one that has been idle for the longest.
 */
export const MAX_CONNECTIONS = 64;

/** Of one connection: Node would start to answer every request that a client writes ahead. */
const MAX_PIPELINED = 4;

type Socket = IncomingMessage['socket'];

/** Retries an address that cannot be bound for ever, as upstream does by default: proxying goes on without it. */
export class HttpServer {
  readonly #options: HttpServerOptions;
  readonly #server: Server;
  /** Connections, with their requests under way. Idle ones are in the order in which they became idle. */
  readonly #connections = new Map<Socket, number>();
  /** Rejects never. */
  #attempt: Promise<void> | undefined;
  /** Defined while it listens. */
  #release: (() => void) | undefined;
  #retry: Timer | undefined;
  #loggedProblem: string | undefined;
  #closed = false;

  constructor(options: HttpServerOptions) {
    this.#options = options;
    this.#server = createServer(
      {
        requestTimeout: REQUEST_TIMEOUT_MS,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        // Node looks for overdue requests only this often; its default of 30 s would make the limits above meaningless.
        connectionsCheckingInterval: 1_000,
      },
      (request, response) => void this.#answer(request, response),
    );
    this.#server.on('connection', (socket) => this.#connected(socket));
    this.#server.on('error', (error) => {
      // #listen reports why it cannot listen.
      const fields = { server: options.name, ...fieldsOf(options.place), err: error.message };
      if (this.#server.listening) options.log.warn('Cannot accept an HTTP connection', fields);
    });
    const { answerToJson } = options;
    if (answerToJson !== undefined) {
      this.#server.on('clientError', (error: Error & { readonly rawPacket?: Buffer }, socket) => {
        const isJson = error.rawPacket?.toString('latin1').startsWith('{');
        if (socket.writable)
          socket.end(isJson ? answerToJson : 'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
        (socket as Socket).destroySoon();
      });
    }
  }

  /** Where it listens; `undefined` while it does not. */
  get address(): AddressInfo | undefined {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address : undefined;
  }

  /** Returns at once; the log says whether and when it listens. */
  start(): void {
    if (!this.#closed) this.#attempt = this.#listen();
  }

  /** Stops listening and retrying, ends every connection. The place of a server that listens is free at once. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    if (this.#release === undefined) await this.#attempt;
    if (this.#release === undefined) return;
    this.#release();
    this.#release = undefined;
    await new Promise((resolve) => {
      this.#server.close(resolve);
      this.#server.closeAllConnections();
    });
  }

  async #listen(): Promise<void> {
    const { name, place, hint, onUnbindable, clock, log } = this.#options;
    try {
      this.#release = await listen(this.#server, place);
      if (this.#closed) return;
      const at = this.address && { address: endpointName(this.address) };
      log.info('Serving HTTP', { server: name, ...(at ?? fieldsOf(place)) });
    } catch (error) {
      if (this.#closed) return;
      const err = messageOf(error);
      const fields = { server: name, ...fieldsOf(place), err };
      if (onUnbindable !== undefined) {
        log.error(`Cannot serve HTTP here; ${hint}`, fields);
        onUnbindable();
        return;
      }
      // Once for each reason; the line about serving HTTP reports the end of it.
      if (this.#loggedProblem !== err) {
        log.error(`Cannot serve HTTP here; retrying every ${BIND_RETRY_MS / 1_000} s; ${hint}`, fields);
      }
      this.#loggedProblem = err;
      this.#retry = clock.after(BIND_RETRY_MS, () => this.start());
    }
  }

  /**
   * An idle connection gives way to a new one, so that idle clients cannot keep out a kubelet or a load balancer. When
   * every connection is being answered, the new one is closed.
   */
  #connected(socket: Socket): void {
    socket.on('close', () => this.#connections.delete(socket));
    const { maxConnections = MAX_CONNECTIONS } = this.#options;
    if (this.#connections.size >= maxConnections) {
      const [idle] = [...this.#connections].find(([, requests]) => requests === 0) ?? [socket];
      this.#connections.delete(idle);
      idle.destroy();
      if (idle === socket) return;
    }
    this.#connections.set(socket, 0);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { socket, method } = request;
    const before = this.#connections.get(socket);
    if (before === undefined) return;
    if (before === MAX_PIPELINED) {
      socket.destroy();
      return;
    }
    this.#connections.set(socket, before + 1);
    const left = new AbortController();
    response.on('close', () => {
      left.abort();
      const requests = this.#connections.get(socket) ?? 0;
      // To the end of the order, as it may be idle from now on.
      if (this.#connections.delete(socket)) this.#connections.set(socket, requests - 1);
    });
    const { status, contentType, headers, body, deadline } = await this.#route(request, left.signal);
    if (left.signal.aborted) return;
    if (deadline === undefined || deadline === 'whole') this.#limit(response, RESPONSE_TIMEOUT_MS);
    response.writeHead(status, {
      'Content-Type': contentType,
      'X-Content-Type-Options': 'nosniff',
      ...(typeof body === 'string' && { 'Content-Length': Buffer.byteLength(body) }),
      ...headers,
    });
    // Node leaves the body of a text out of an answer to HEAD.
    if (typeof body === 'string') response.end(body);
    else if (method === 'HEAD') response.end();
    else {
      response.flushHeaders();
      await this.#stream(request, response, deadline === 'part' ? this.#inTime(body, response) : body);
    }
  }

  /** The client has so long for what there is. */
  #limit(response: ServerResponse, ms: number): Timer {
    const timer = this.#options.clock.after(ms, () => response.destroy());
    response.on('close', () => timer.cancel());
    return timer;
  }

  /** Gives each part its own deadline. The next one is read when the client has taken the last one. */
  async *#inTime(parts: AsyncIterable<string>, response: ServerResponse): AsyncGenerator<string> {
    for await (const part of parts) {
      const deadline = this.#options.clock.after(READ_TIMEOUT_MS, () => response.destroy());
      try {
        yield part;
      } finally {
        deadline.cancel();
      }
    }
    this.#limit(response, READ_TIMEOUT_MS);
  }

  /** A failure ends the connection in the middle, which tells the client that the answer is not complete. */
  async #stream(request: IncomingMessage, response: ServerResponse, body: AsyncIterable<string>): Promise<void> {
    const { name, log } = this.#options;
    try {
      // One part at a time: each is as large as what the socket takes at once.
      await pipeline(Readable.from(body, { highWaterMark: 1 }), response);
    } catch (error) {
      // The client left, or was too slow.
      if ((error as NodeJS.ErrnoException).code === 'ERR_STREAM_PREMATURE_CLOSE') return;
      log.error('An HTTP answer broke off', { server: name, path: pathOf(request), err: String(error) });
    }
  }

  async #route(request: IncomingMessage, signal: AbortSignal): Promise<HttpResponse> {
    const { name, audience, routes, posts, log } = this.#options;
    const { headers, method, socket, url = '' } = request;
    const refusal = audience === 'operators' ? refusalOf(headers, socket.localAddress) : undefined;
    const path = pathOf(request);
    if (refusal !== undefined) return problem(path, 403, refusal);
    const [toRead, toChange] = [routes.get(path), posts?.get(path)];
    const handler = method === 'POST' ? toChange : method === 'GET' || method === 'HEAD' ? toRead : undefined;
    if (handler === undefined) {
      if (toRead === undefined && toChange === undefined) return problem(path, 404, '404 page not found');
      const allowed = toRead === undefined ? 'POST' : 'GET, HEAD';
      const text = `Only ${allowed.replace(', ', ' and ')} ${toRead ? 'are' : 'is'} served here.`;
      const answer = problem(path, 405, text);
      return { ...answer, headers: { Allow: allowed, Connection: 'close' } };
    }
    try {
      const isLocal = socket.localAddress === undefined || isLoopback(socket.localAddress);
      return await handler({ query: new URLSearchParams(url.slice(path.length)), signal, isLocal });
    } catch (error) {
      log.error('Cannot answer an HTTP request', { server: name, path, err: String(error) });
      return problem(path, 500, 'This could not be answered; the log of the proxy says why.');
    }
  }
}

/** Resolves when the server listens, with what to do before it is closed. Rejects with the reason why it cannot. */
async function listen(server: Server, place: Place): Promise<() => void> {
  if ('path' in place) {
    const file = await listenAt(server, place.path);
    return () => file.release();
  }
  const { address: host, port } = place;
  // Without a host, Node listens on `::` for both families, or on 0.0.0.0 where the kernel has no IPv6.
  server.listen({ port, ...(host !== undefined && { host }) });
  await once(server, 'listening');
  return () => {};
}

/** For the log. */
function fieldsOf(place: Place): Readonly<Record<string, string>> {
  if ('path' in place) return { file: place.path };
  return { address: endpointName({ address: place.address ?? '*', port: place.port }) };
}

function pathOf(request: IncomingMessage): string {
  return request.url?.replace(/\?.*$/s, '') ?? '';
}
