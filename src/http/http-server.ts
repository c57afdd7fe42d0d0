import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { endpointName } from '../model/endpoint.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { refusalOf } from './http-origin.ts';

/* The HTTP server of every address that the program serves: GET and HEAD, with bounds and deadlines. */

export interface HttpRequest {
  readonly query: URLSearchParams;
  /** Aborted when the client has left, or has its answer. */
  readonly signal: AbortSignal;
}

export interface HttpResponse {
  readonly status: number;
  readonly contentType: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** A long one comes in parts, each made when the client has taken the last one. */
  readonly body: string | AsyncIterable<string>;
  /** The deadline is for each part, not for the whole answer. */
  readonly unhurried?: true;
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

/** Answers `busy` while `max` requests are under way, each until its client has the answer or has left. */
export function atOnce(max: number, busy: HttpResponse, handler: Handler): Handler {
  let count = 0;
  return (request) => {
    if (count >= max) return busy;
    count++;
    request.signal.addEventListener('abort', () => count--);
    return handler(request);
  };
}

export interface HttpServerOptions {
  /** For the log: "healthz", "metrics". */
  readonly name: string;
  /** `undefined`: every address of the machine, of both families. */
  readonly address: string | undefined;
  /** 0 lets the kernel choose. */
  readonly port: number;
  /** What to do about an address that cannot be bound; ends the log's sentence. */
  readonly hint: string;
  /** `--bind-address-hard-fail`: called when the address cannot be bound; there is no retry then. */
  readonly onUnbindable?: () => void;
  /** At a time: {@link MAX_CONNECTIONS}, or fewer in tests. */
  readonly maxConnections?: number;
  /** `operators`: not for web sites that make an operator's browser ask; see {@link refusalOf}. */
  readonly audience: 'anybody' | 'operators';
  readonly routes: Routes;
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
const MAX_CONNECTIONS = 64;

/** Of one connection: Node would start to answer every request that a client writes ahead. */
const MAX_PIPELINED = 4;

type Socket = IncomingMessage['socket'];

/** Retries an address that cannot be bound for ever, as upstream does by default: proxying goes on without it. */
export class HttpServer {
  readonly #options: HttpServerOptions;
  readonly #server: Server;
  /** Connections, with their requests under way. Idle ones are in the order in which they became idle. */
  readonly #connections = new Map<Socket, number>();
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
    this.#server.on('listening', () => this.#listening());
    this.#server.on('error', (error) => this.#failed(error));
  }

  /** Where it listens; `undefined` while it does not. */
  get address(): AddressInfo | undefined {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address : undefined;
  }

  /** Returns at once; the log says whether and when the address could be bound. */
  start(): void {
    const { address: host, port } = this.#options;
    // Without a host, Node listens on `::` for both families, or on 0.0.0.0 where the kernel has no IPv6.
    this.#server.listen({ port, ...(host !== undefined && { host }) });
  }

  /** Stops listening and retrying, ends every connection. The port is free when this returns, before it resolves. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    if (!this.#server.listening) return;
    await new Promise((resolve) => {
      this.#server.close(resolve);
      this.#server.closeAllConnections();
    });
  }

  #listening(): void {
    const { name, log } = this.#options;
    // close() came while the address was being bound.
    if (this.#closed) this.#server.close();
    else if (this.address) log.info('Serving HTTP', { server: name, address: endpointName(this.address) });
  }

  #failed(error: Error): void {
    const { name, address = '*', port, hint, onUnbindable, clock, log } = this.#options;
    const fields = { server: name, address: endpointName({ address, port }), err: error.message };
    if (this.#closed) return;
    if (this.#server.listening) {
      log.warn('Cannot accept an HTTP connection', fields);
    } else if (onUnbindable !== undefined) {
      log.error(`Cannot serve HTTP here; ${hint}`, fields);
      onUnbindable();
    } else {
      // Once for each reason; the line about serving HTTP reports the end of it.
      if (this.#loggedProblem !== error.message) {
        log.error(`Cannot serve HTTP here; retrying every ${BIND_RETRY_MS / 1_000} s; ${hint}`, fields);
      }
      this.#loggedProblem = error.message;
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
    const { status, contentType, headers, body, unhurried } = await this.#route(request, left.signal);
    if (left.signal.aborted) return;
    if (!unhurried) {
      const deadline = this.#deadline(response);
      response.on('close', () => deadline.cancel());
    }
    response.writeHead(status, {
      'Content-Type': contentType,
      'X-Content-Type-Options': 'nosniff',
      ...(typeof body === 'string' && { 'Content-Length': Buffer.byteLength(body) }),
      ...headers,
    });
    // Node leaves the body of a text out of an answer to HEAD.
    if (typeof body === 'string') response.end(body);
    else if (method === 'HEAD') response.end();
    else await this.#stream(request, response, unhurried ? this.#inTime(body, response) : body);
  }

  #deadline(response: ServerResponse): Timer {
    return this.#options.clock.after(RESPONSE_TIMEOUT_MS, () => response.destroy());
  }

  /** Gives each part its own deadline. The next one is read when the client has taken the last one. */
  async *#inTime(parts: AsyncIterable<string>, response: ServerResponse): AsyncGenerator<string> {
    for await (const part of parts) {
      const deadline = this.#deadline(response);
      try {
        yield part;
      } finally {
        deadline.cancel();
      }
    }
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
    const { name, audience, routes, log } = this.#options;
    const refusal = audience === 'operators' ? refusalOf(request.headers, request.socket.localAddress) : undefined;
    if (refusal !== undefined) return textResponse(403, `${refusal}\n`);
    const path = pathOf(request);
    const handler = routes.get(path);
    if (handler === undefined) return textResponse(404, '404 page not found\n');
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      const headers = { Allow: 'GET, HEAD', Connection: 'close' };
      return { ...textResponse(405, 'Only GET and HEAD are served here.\n'), headers };
    }
    try {
      return await handler({ query: new URLSearchParams(request.url?.slice(path.length)), signal });
    } catch (error) {
      log.error('Cannot answer an HTTP request', { server: name, path, err: String(error) });
      return textResponse(500, 'This could not be answered; the log of the proxy says why.\n');
    }
  }
}

function pathOf(request: IncomingMessage): string {
  return request.url?.replace(/\?.*$/s, '') ?? '';
}
