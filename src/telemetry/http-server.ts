import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock, Timer } from '../contracts/clock.ts';
import type { Log } from '../contracts/log.ts';
import { endpointName } from '../model/endpoint.ts';
import { type HttpResponse, type Routes, TEXT } from './routes.ts';

export interface HttpServerOptions {
  /** For the log: "healthz", "metrics". */
  readonly name: string;
  /** Port 0 lets the kernel choose. */
  readonly address: string;
  readonly port: number;
  /** Connections at a time; further ones are closed at once. */
  readonly maxConnections: number;
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
 * Serves GET and HEAD on one address. An address that cannot be bound is retried for ever and never stops the proxy:
 * balancing goes on without it, as with upstream's `--bind-address-hard-fail=false`.
 */
export class HttpServer {
  readonly #options: HttpServerOptions;
  readonly #server: Server;
  #retry: Timer | undefined;
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
    this.#server.maxConnections = options.maxConnections;
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
    this.#server.listen({ host, port });
  }

  /** Stops listening, ends every connection, gives up retrying. */
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
    const { name, address, port, clock, log } = this.#options;
    const fields = { server: name, address: endpointName({ address, port }), err: error.message };
    if (this.#server.listening) {
      log.warn('Cannot accept an HTTP connection', fields);
    } else if (!this.#closed) {
      log.error(
        `Cannot serve HTTP here, trying again every ${BIND_RETRY_MS / 1_000} s; see --${name}-bind-address`,
        fields,
      );
      this.#retry = clock.after(BIND_RETRY_MS, () => this.start());
    }
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { clock } = this.#options;
    const deadline = clock.after(RESPONSE_TIMEOUT_MS, () => response.destroy());
    response.on('close', () => deadline.cancel());
    const { status, contentType, body } = await this.#route(request);
    response.writeHead(status, {
      'Content-Type': contentType,
      'X-Content-Type-Options': 'nosniff',
      'Content-Length': Buffer.byteLength(body),
      ...(status === 405 ? { Allow: 'GET, HEAD', Connection: 'close' } : {}),
    });
    // Node leaves the body out of an answer to HEAD.
    response.end(body);
  }

  async #route(request: IncomingMessage): Promise<HttpResponse> {
    const { name, routes, log } = this.#options;
    const path = request.url?.replace(/\?.*$/s, '') ?? '';
    const handler = routes.get(path);
    if (handler === undefined) return { status: 404, contentType: TEXT, body: '404 page not found\n' };
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      return { status: 405, contentType: TEXT, body: 'Only GET and HEAD are served here.\n' };
    }
    try {
      return await handler();
    } catch (error) {
      log.error('Cannot answer an HTTP request', { server: name, path, err: String(error) });
      return { status: 500, contentType: TEXT, body: 'This could not be answered; the log of the proxy says why.\n' };
    }
  }
}
