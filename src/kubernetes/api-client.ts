import type { Agent, IncomingMessage } from 'node:http';
import type { ApiRequestMetrics } from '../model/metrics.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { TokenBucket } from '../util/token-bucket.ts';
import type { Access, AccessSource } from './access.ts';
import { AgentPool } from './agent-pool.ts';
import { ApiError, cut, readStatus } from './api-error.ts';
import { type HttpRequest, readBody, StaleConnectionError, sendRequest } from './http-exchange.ts';

/** What the reflector needs of the network. Every failure is an {@link ApiError}. Paths come with their query. */
export interface Transport {
  /**
   * A GET whose answer is streamed; not subject to the rate limit. Resolves at the head of a successful JSON answer.
   * Aborting ends the stream with the signal's reason, and nothing comes after that.
   */
  watch(path: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** A GET whose answer is one JSON value, bounded in size and time. */
  get(path: string, signal: AbortSignal): Promise<unknown>;
  /** Resolves when the server answered anything at all within {@link PROBE_DEADLINE_MS}. Calls share one request. */
  probe(): Promise<void>;
  /** `Clock.now()` of the last byte from the server, on any connection. */
  readonly lastContactAt: number | undefined;
}

/** How long a server may take to answer a trivial request before it counts as dead. */
const PROBE_DEADLINE_MS = 10_000;

export interface ApiClientOptions {
  readonly access: AccessSource;
  /** `host:port`: the `host` of metrics and messages. */
  readonly host: string;
  /** Requests per second other than watches and events, on the average and at once; both above 0. */
  readonly qps: number;
  readonly burst: number;
  readonly userAgent: string;
  /** Where `HTTPS_PROXY` and the like come from. */
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: ApiRequestMetrics;
}

/**
 * How long a response that is not a watch may be silent. There is no limit to the whole: a slow link may need minutes. The
 * API server has one of its own (`--request-timeout`, 60 s until it has handed everything to its kernel). What drips is as
 * good as silent, so only so many bytes are progress.
 */
const SILENCE_MS = 60_000;
const PROGRESS_BYTES = 4_096;

/** Decompressed. A page has 500 objects of at most 1.5 MiB each, and nearly always of a few KiB. */
const BODY_MAX_BYTES = 256 * 1024 * 1024;

/** What a refusal may say, and how long it may take. */
const REFUSAL_MAX_BYTES = 64 * 1024;
const REFUSAL_DEADLINE_MS = 10_000;

interface Call {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: string;
  readonly encoding?: 'gzip';
  readonly signal: AbortSignal;
}

/** Access and the pool of connections that goes with it. */
interface Route {
  readonly access: Access;
  readonly agent: Agent;
}

/**
 * The API server's resources over HTTP. One pool of keep-alive connections, HTTP/1.1: a watch has its connection for
 * itself, so that a slow list never holds it up and a connection that breaks takes one watch with it.
 */
export class ApiClient implements Transport {
  readonly host: string;
  readonly #options: ApiClientOptions;
  readonly #agents: AgentPool;
  readonly #bucket: TokenBucket;
  #lastContactAt: number | undefined;
  /** What the server answered to last. */
  #lastRoute: Route | undefined;
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
    // As client-go does. The API server compresses what has more than 128 KiB, and never a watch.
    return this.#call({ method: 'GET', path, encoding: 'gzip', signal });
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

  /** Breaks every connection. */
  close(): void {
    this.#agents.close();
  }

  /**
   * `/livez`, because everybody may ask it and no flow control holds it back (FlowSchema `probes`). By the route that
   * worked last: trouble with new credentials says nothing of the server, and even its 401 is an answer.
   */
  async #answers(): Promise<void> {
    const late = new ApiError(
      'unreachable',
      `${this.host}: no answer to a probe within ${PROBE_DEADLINE_MS / 1_000} s`,
    );
    await this.#within(PROBE_DEADLINE_MS, { late }, async (signal) => {
      const response = await this.#send({ method: 'GET', path: '/livez', signal }, this.#lastRoute);
      // To its end, so that the connection can be used again.
      await collect(this.#read(response, signal), REFUSAL_MAX_BYTES);
    });
  }

  async #call(call: Call): Promise<unknown> {
    // What is posted is events, whose senders pace themselves: they must not take what lists need (client-go gives them a
    // client of their own).
    if (call.method === 'GET') await this.#bucket.take(call.signal);
    const late = new ApiError('incomplete', `no more of the answer came for ${SILENCE_MS / 1_000} s`);
    return await this.#within(SILENCE_MS, { late, outer: call.signal }, async (signal, heard) => {
      const response = await this.#send({ ...call, signal });
      await this.#expectJson(response, signal);
      return parseJson(await collect(this.#read(response, signal), BODY_MAX_BYTES, heard));
    });
  }

  /** Resolves with the head of the response, whatever its status. */
  async #send({ method, path, body, encoding, signal }: Call, route?: Route): Promise<IncomingMessage> {
    const { access, agent } = route ?? (await unlessAborted(this.#route(), signal));
    const request: HttpRequest = {
      method,
      url: new URL(access.server.href.replace(/\/$/, '') + path),
      headers: {
        Accept: 'application/json',
        'User-Agent': this.#options.userAgent,
        ...(encoding !== undefined && { 'Accept-Encoding': encoding }),
        ...(body !== undefined && { 'Content-Type': 'application/json' }),
        ...access.headers,
      },
      body,
      agent,
    };
    let response: IncomingMessage;
    try {
      response = await this.#measured(request, signal);
    } catch (error) {
      if (!(error instanceof StaleConnectionError) || method !== 'GET') throw error;
      response = await this.#measured(request, signal);
    }
    this.#lastContactAt = this.#options.clock.now();
    this.#lastRoute = { access, agent };
    return response;
  }

  async #route(): Promise<Route> {
    const access = await this.#options.access.current();
    return { access, agent: this.#agents.agentFor(access) };
  }

  async #measured(request: HttpRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const { clock, metrics } = this.#options;
    const beganAt = clock.now();
    let code = '<error>';
    try {
      const response = await sendRequest(request, { clock, signal });
      code = String(response.statusCode);
      return response;
    } finally {
      metrics.requestDone({ method: request.method, host: this.host, code, durationMs: clock.now() - beganAt });
    }
  }

  /** Returns on success, else throws what the server said. */
  async #expectJson(response: IncomingMessage, signal: AbortSignal): Promise<void> {
    const { statusCode: status = 0, headers } = response;
    const type = headers['content-type'] ?? '';
    const isJson = /^application\/json\b/.test(type);
    if (status >= 200 && status < 300) {
      if (isJson) return;
      response.destroy();
      throw new ApiError('garbage', `the answer is of type ${JSON.stringify(cut(type))} instead of application/json`);
    }
    if (status === 401) this.#options.access.refused();
    const late = new ApiError('incomplete', 'the refusal was not complete');
    const text = await this.#within(REFUSAL_DEADLINE_MS, { late, outer: signal }, (inner) =>
      collect(this.#read(response, inner), REFUSAL_MAX_BYTES),
    ).catch(() => '');
    const said = readStatus(isJson ? tryJson(text) : undefined);
    const seconds = Number(headers['retry-after']);
    throw new ApiError('status', `HTTP ${status}${said.message === undefined ? '' : `: ${said.message}`}`, {
      status,
      retryAfterMs: seconds > 0 ? seconds * 1_000 : said.retryAfterMs,
    });
  }

  #read(response: IncomingMessage, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const onData = () => {
      this.#lastContactAt = this.#options.clock.now();
    };
    return readBody(response, { host: this.host, signal, onData });
  }

  /** Aborts `work` with `late` once `ms` have passed since the start or since it was heard of, or with `outer`. */
  async #within<T>(
    ms: number,
    { late, outer }: { readonly late: ApiError; readonly outer?: AbortSignal },
    work: (signal: AbortSignal, heard: () => void) => Promise<T>,
  ): Promise<T> {
    const { clock } = this.#options;
    const controller = new AbortController();
    const signal = outer === undefined ? controller.signal : AbortSignal.any([outer, controller.signal]);
    let heardAt = clock.now();
    // Looks when it may be late, instead of moving a timer with every piece.
    const look = () => {
      const leftMs = heardAt + ms - clock.now();
      if (leftMs > 0) timer = clock.after(leftMs, look);
      else controller.abort(late);
    };
    let timer = clock.after(ms, look);
    try {
      return await work(signal, () => {
        heardAt = clock.now();
      });
    } finally {
      timer.cancel();
    }
  }
}

/** For work that cannot be interrupted, such as an exec plugin: it may go on, but nobody waits for it. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort);
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

async function collect(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  onProgress: () => void = () => {},
): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    if ((length % PROGRESS_BYTES) + chunk.length >= PROGRESS_BYTES) onProgress();
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

/** `undefined` for what is not JSON. */
function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
