import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { endpointName } from '../model/endpoint.ts';
import type { Clock, Timer } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { type HttpResponse, type Routes, TEXT } from './http.ts';
import { HttpConnections } from './http-connections.ts';
import { refusalOf } from './http-origin.ts';

export interface HttpServerOptions {
  /** For the log: "healthz", "metrics". */
  readonly name: string;
  /** `undefined`: every address of the machine, of both families. */
  readonly address: string | undefined;
  /** 0 lets the kernel choose. */
  readonly port: number;
  /** What to do about an address that cannot be bound; ends the log's sentence. */
  readonly hint: string;
  /** `--bind-address-hard-fail`: called when the address cannot be bound, and nothing is tried again. */
  readonly onUnbindable?: () => void;
  /** Connections at a time; see {@link HttpConnections}. */
  readonly maxConnections: number;
  /** What is for operators is not for web sites that make a browser of theirs ask; see {@link refusalOf}. */
  readonly audience: 'anybody' | 'operators';
  readonly routes: Routes;
  readonly clock: Clock;
  readonly log: Log;
}

/** As upstream's `wait.Until(fn, 5*time.Second, …)` around both servers (`cmd/kube-proxy/app/server.go`). */
const BIND_RETRY_MS = 5_000;

/**
 * A client that dawdles over its request or over reading the answer loses its connection, so that a few of them cannot
 * keep the kubelet's probe out. Ten seconds are Prometheus' own limit on a scrape.
 */
const REQUEST_TIMEOUT_MS = 3_000;
const RESPONSE_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_TIMEOUT_MS = 10_000;

/**
 * Serves GET and HEAD on one address. An address that cannot be bound is retried for ever, as by default upstream:
 * balancing goes on without it.
 */
export class HttpServer {
  readonly #options: HttpServerOptions;
  readonly #server: Server;
  readonly #connections: HttpConnections;
  #retry: Timer | undefined;
  #toldProblem: string | undefined;
  #closed = false;

  constructor(options: HttpServerOptions) {
    this.#options = options;
    this.#server = createServer(
      {
        requestTimeout: REQUEST_TIMEOUT_MS,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
        // Node looks for overdue requests only so often; its own 30 s would make the limits above meaningless.
        connectionsCheckingInterval: 1_000,
      },
      (request, response) => {
        void this.#answer(request, response);
      },
    );
    this.#connections = new HttpConnections(options.maxConnections);
    this.#server.on('connection', (socket) => this.#connections.opened(socket));
    this.#server.on('listening', () => this.#listening());
    this.#server.on('error', (error) => this.#failed(error));
  }

  /** Where it listens; `undefined` while it does not. */
  get address(): AddressInfo | undefined {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address : undefined;
  }

  /** Returns at once; whether and when the address could be bound is in the log. */
  start(): void {
    const { address: host, port } = this.#options;
    // Without a host, Node listens on `::` for both families, or on 0.0.0.0 where the kernel has no IPv6.
    this.#server.listen({ port, ...(host !== undefined && { host }) });
  }

  /** Stops listening, ends every connection, gives up retrying. The port is free when this returns, before it resolves. */
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
      // Once for each reason: the line that it serves tells the end of it.
      if (this.#toldProblem !== error.message) {
        log.error(`Cannot serve HTTP here, trying again every ${BIND_RETRY_MS / 1_000} s; ${hint}`, fields);
      }
      this.#toldProblem = error.message;
      this.#retry = clock.after(BIND_RETRY_MS, () => this.start());
    }
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { socket } = request;
    if (!this.#connections.requested(socket)) return;
    const left = new AbortController();
    response.on('close', () => {
      left.abort();
      this.#connections.answered(socket);
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
    // Node leaves the body of a whole text out of an answer to HEAD.
    if (typeof body === 'string') response.end(body);
    else if (request.method === 'HEAD') response.end();
    else await this.#stream(request, response, unhurried ? this.#inTime(body, response) : body);
  }

  /** For taking what there is now. */
  #deadline(response: ServerResponse): Timer {
    return this.#options.clock.after(RESPONSE_TIMEOUT_MS, () => response.destroy());
  }

  /** With a deadline for each part. The next one is asked for when the client has taken what was before. */
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

  /** Whatever fails now ends the connection in the middle, which tells the client that the answer is not whole. */
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
    if (refusal !== undefined) return { status: 403, contentType: TEXT, body: `${refusal}\n` };
    const path = pathOf(request);
    const handler = routes.get(path);
    if (handler === undefined) return { status: 404, contentType: TEXT, body: '404 page not found\n' };
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return {
        status: 405,
        contentType: TEXT,
        headers: { Allow: 'GET, HEAD', Connection: 'close' },
        body: 'Only GET and HEAD are served here.\n',
      };
    }
    try {
      const query = new URLSearchParams(request.url?.slice(path.length));
      const response = await handler({ query, signal });
      const { body } = response;
      return typeof body === 'string' ? response : { ...response, body: await begun(body) };
    } catch (error) {
      log.error('Cannot answer an HTTP request', { server: name, path, err: String(error) });
      return { status: 500, contentType: TEXT, body: 'This could not be answered; the log of the proxy says why.\n' };
    }
  }
}

function pathOf(request: IncomingMessage): string {
  return request.url?.replace(/\?.*$/s, '') ?? '';
}

/** The same body, its first part made: what fails until then can still be answered with 500. */
async function begun(body: AsyncIterable<string>): Promise<AsyncIterable<string>> {
  const rest = body[Symbol.asyncIterator]();
  const first = await rest.next();
  return (async function* () {
    if (first.done) return;
    yield first.value;
    yield* { [Symbol.asyncIterator]: () => rest };
  })();
}
