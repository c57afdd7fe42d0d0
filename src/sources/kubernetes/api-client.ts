import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Clock } from '../../contracts/clock.ts';
import type { Log } from '../../contracts/log.ts';
import type { ApiRequestMetrics } from '../../contracts/metrics.ts';
import type { Access, AccessSource } from './access.ts';
import { AgentPool, KEEP_ALIVE_MS } from './agent-pool.ts';
import { ApiError, causeMessage, cut, readStatus } from './api-error.ts';
import { TokenBucket } from './token-bucket.ts';
import { PROBE_DEADLINE_MS, type Transport } from './transport.ts';

export interface ApiClientOptions {
  readonly access: AccessSource;
  /** `host:port`: the `host` of metrics and messages. */
  readonly host: string;
  /** Requests per second other than watches, on the average and at once. */
  readonly qps: number;
  readonly burst: number;
  readonly userAgent: string;
  /** Where `HTTPS_PROXY` and the like come from. */
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: ApiRequestMetrics;
}

/** Until the connection stands and the request is on its way. */
const CONNECT_DEADLINE_MS = 10_000;

/** Until the head of the response. A busy server may queue a request for some time (priority and fairness). */
const HEAD_DEADLINE_MS = 30_000;

/** Until the end of a response that is not a watch; the API server itself gives up after 60 s. */
const BODY_DEADLINE_MS = 60_000;

/** A page of 500 objects, which have at most 1.5 MiB each and nearly always some KiB. */
const BODY_MAX_BYTES = 256 * 1024 * 1024;

const ERROR_BODY_MAX_BYTES = 64 * 1024;

interface Exchange {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: string;
  readonly signal: AbortSignal;
  /** Instead of asking for the current one. */
  readonly access?: Access | undefined;
}

/**
 * HTTP to the API server. One pool of keep-alive connections over HTTP/1.1: a watch has its connection for itself, so a
 * slow list never holds it up, and a connection that is broken breaks one watch only.
 */
export class ApiClient implements Transport {
  readonly host: string;
  readonly #options: ApiClientOptions;
  readonly #agents: AgentPool;
  readonly #bucket: TokenBucket;
  #lastContactAt: number | undefined;
  #lastAccess: Access | undefined;
  #probe: Promise<void> | undefined;

  constructor(options: ApiClientOptions) {
    const { clock, qps, burst, env, log, host } = options;
    this.host = host;
    this.#options = options;
    this.#agents = new AgentPool({ env, log });
    this.#bucket = new TokenBucket({ clock, ratePerSecond: qps, burst });
  }

  get lastContactAt(): number | undefined {
    return this.#lastContactAt;
  }

  async watch(path: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const response = await this.#send({ method: 'GET', path, signal });
    await this.#expectJson(response, signal);
    return this.#read(response, signal);
  }

  get(path: string, signal: AbortSignal): Promise<unknown> {
    return this.#call({ method: 'GET', path, signal });
  }

  /** Sends a JSON body and gives the JSON answer. Not repeated on its own when it fails. */
  post(path: string, body: unknown, signal: AbortSignal): Promise<unknown> {
    return this.#call({ method: 'POST', path, body: JSON.stringify(body), signal });
  }

  probe(): Promise<void> {
    this.#probe ??= this.#answers().finally(() => {
      this.#probe = undefined;
    });
    return this.#probe;
  }

  close(): void {
    this.#agents.close();
  }

  /**
   * `/livez`, because everybody may ask it and no flow control holds it back (FlowSchema `probes`). With the access of
   * the last request: trouble with new credentials says nothing of the server, and even its 401 would be an answer.
   */
  async #answers(): Promise<void> {
    const { clock } = this.#options;
    const late = new ApiError(
      'unreachable',
      `${this.host}: no answer to a probe within ${PROBE_DEADLINE_MS / 1_000} s`,
    );
    await within(PROBE_DEADLINE_MS, { clock, late }, async (signal) => {
      const response = await this.#send({ method: 'GET', path: '/livez', signal, access: this.#lastAccess });
      // To its end, so that the connection can be used again.
      await collect(this.#read(response, signal), ERROR_BODY_MAX_BYTES);
    });
  }

  async #call(exchange: Exchange): Promise<unknown> {
    const { clock } = this.#options;
    await this.#bucket.take(exchange.signal);
    const late = new ApiError('timeout', `the answer was not complete within ${BODY_DEADLINE_MS / 1_000} s`);
    return await within(BODY_DEADLINE_MS, { clock, late, outer: exchange.signal }, async (signal) => {
      const response = await this.#send({ ...exchange, signal });
      await this.#expectJson(response, signal);
      return parseJson(await collect(this.#read(response, signal), BODY_MAX_BYTES));
    });
  }

  /** Returns on success, else throws what the server said. */
  async #expectJson(response: IncomingMessage, signal: AbortSignal): Promise<void> {
    const { statusCode: status = 0, headers } = response;
    const type = headers['content-type'] ?? '';
    const isJson = /^application\/json\b/.test(type);
    if (status >= 200 && status < 300) {
      if (isJson) return;
      response.destroy();
      throw new ApiError('garbage', `the answer is ${JSON.stringify(cut(type))} instead of application/json`);
    }
    if (status === 401) this.#options.access.refused();
    const { clock } = this.#options;
    const late = new ApiError('timeout', `the HTTP ${status} answer was not complete`);
    const text = await within(PROBE_DEADLINE_MS, { clock, late, outer: signal }, (inner) =>
      collect(this.#read(response, inner), ERROR_BODY_MAX_BYTES),
    ).catch(() => '');
    const said = readStatus(isJson ? tryJson(text) : undefined);
    const seconds = Number(headers['retry-after'] ?? Number.NaN);
    throw new ApiError('status', `HTTP ${status}${said.message === undefined ? '' : `: ${said.message}`}`, {
      status,
      retryAfterMs: seconds > 0 ? seconds * 1_000 : said.retryAfterMs,
    });
  }

  async *#read(response: IncomingMessage, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const abort = () => response.destroy(signal.reason as Error);
    signal.addEventListener('abort', abort);
    try {
      if (signal.aborted) abort();
      for await (const chunk of response) {
        this.#lastContactAt = this.#options.clock.now();
        yield chunk as Buffer;
      }
    } catch (error) {
      throw this.#failure(error, signal);
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** Resolves with the head of the response, whatever its status. */
  async #send(exchange: Exchange): Promise<IncomingMessage> {
    const { clock, metrics } = this.#options;
    const access = exchange.access ?? (await this.#options.access.current());
    const agent = this.#agents.agentFor(access);
    this.#lastAccess = access;
    const url = new URL(access.server.href.replace(/\/$/, '') + exchange.path);
    const headers = {
      Accept: 'application/json',
      'User-Agent': this.#options.userAgent,
      ...access.headers,
      ...(exchange.body !== undefined && { 'Content-Type': 'application/json' }),
    };
    const once = async () => {
      const beganAt = clock.now();
      const done = (code: string) =>
        metrics.requestDone({ method: exchange.method, host: this.host, code, durationMs: clock.now() - beganAt });
      try {
        const response = await this.#exchange({ url, agent, headers, exchange });
        this.#lastContactAt = clock.now();
        done(String(response.statusCode ?? 0));
        return response;
      } catch (error) {
        done('<error>');
        throw error;
      }
    };
    try {
      return await once();
    } catch (error) {
      // The server closed the idle connection at the moment we took it: says nothing of the server.
      if (!(error instanceof StaleConnectionError) || exchange.method !== 'GET') throw error;
      return await once();
    }
  }

  #exchange({
    url,
    agent,
    headers,
    exchange,
  }: {
    readonly url: URL;
    readonly agent: ReturnType<AgentPool['agentFor']>;
    readonly headers: Record<string, string>;
    readonly exchange: Exchange;
  }): Promise<IncomingMessage> {
    const { clock } = this.#options;
    const { method, body, signal } = exchange;
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
      const request = send(url, { method, headers, agent });
      const abort = () => request.destroy(signal.reason as Error);
      const deadline = (ms: number, what: string) =>
        clock.after(ms, () =>
          request.destroy(new ApiError('unreachable', `${this.host}: ${what} within ${ms / 1_000} s`)),
        );
      const connecting = deadline(CONNECT_DEADLINE_MS, 'no connection');
      const answering = deadline(HEAD_DEADLINE_MS, 'no answer');
      const settle = () => {
        connecting.cancel();
        answering.cancel();
        signal.removeEventListener('abort', abort);
      };
      signal.addEventListener('abort', abort);
      request.on('socket', (socket) => {
        socket.setKeepAlive(true, KEEP_ALIVE_MS);
      });
      // The request is handed over only when the connection stands, the TLS handshake included.
      request.on('finish', () => connecting.cancel());
      request.on('response', (response) => {
        settle();
        // The response itself would only say that it was aborted.
        request.on('error', (error) => response.destroy(error));
        resolve(response);
      });
      request.on('error', (error: NodeJS.ErrnoException) => {
        settle();
        const isStale = request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
        reject(
          isStale && !signal.aborted ? new StaleConnectionError(causeMessage(error)) : this.#failure(error, signal),
        );
      });
      request.end(body);
    });
  }

  #failure(error: unknown, signal: AbortSignal): unknown {
    if (signal.aborted) return signal.reason;
    if (error instanceof ApiError) return error;
    const message = causeMessage(error);
    // Node's word for a connection that ends in the middle of a response.
    const reason = message === 'aborted' ? 'the connection was closed' : message;
    return new ApiError('unreachable', `${this.host}: ${reason}`, { cause: error });
  }
}

class StaleConnectionError extends ApiError {
  constructor(message: string) {
    super('unreachable', message);
  }
}

/** Aborts `work` after `ms`, or with `outer`. */
async function within<T>(
  ms: number,
  { clock, late, outer }: { readonly clock: Clock; readonly late: ApiError; readonly outer?: AbortSignal },
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const abort = () => controller.abort(outer?.reason);
  if (outer?.aborted) abort();
  outer?.addEventListener('abort', abort);
  const timer = clock.after(ms, () => controller.abort(late));
  try {
    return await work(controller.signal);
  } finally {
    timer.cancel();
    outer?.removeEventListener('abort', abort);
  }
}

async function collect(body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > maxBytes) throw new ApiError('garbage', `the answer has more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length).toString('utf8');
}

function parseJson(text: string): unknown {
  const value = tryJson(text);
  if (value === undefined)
    throw new ApiError('garbage', `the answer is not JSON: ${JSON.stringify(text.slice(0, 60))}`);
  return value;
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
