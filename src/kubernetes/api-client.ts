import type { Agent, IncomingMessage } from 'node:http';
import type { Endpoint } from '../model/endpoint.ts';
import type { ApiRequestMetrics } from '../model/metrics.ts';
import type { Clock } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { TokenBucket } from '../util/token-bucket.ts';
import { parseJson } from '../util/untrusted.ts';
import { unlessAborted } from '../util/wait.ts';
import type { Access, AccessSource } from './access.ts';
import { AgentPool } from './agent-pool.ts';
import { ApiError, cut, readStatus } from './api-error.ts';
import { collect, readBody, sendRequest, withinSilence } from './http-exchange.ts';

/** The requests of the reflector. Every failure is an {@link ApiError}. Paths include their query. */
export interface Transport {
  /**
   * A GET whose answer is streamed; not subject to the rate limit. Resolves at the head of a successful JSON answer.
   * Aborting ends the stream with the reason of the signal, and nothing comes after that.
   */
  watch(path: string, signal: AbortSignal): Promise<WatchStream>;
  /** A GET whose answer is one JSON value, bounded in size and silence. */
  get(path: string, signal: AbortSignal): Promise<unknown>;
}

export interface WatchStream {
  readonly body: AsyncIterable<Uint8Array>;
  /** The server that sends it. */
  readonly server: Contact;
}

/** Whether one server is still there. */
export interface Contact {
  /** Resolves when the server gave any answer within 10 s. Concurrent calls share one request. */
  probe(): Promise<void>;
  /** `Clock.now()` of the last byte from the server, on any connection. */
  readonly lastContactAt: number | undefined;
}

export interface ApiClientOptions {
  readonly access: AccessSource;
  /** Where it is as far as that is known now; a kubeconfig may change. Its `host` is that of metrics and errors. */
  readonly server: URL;
  /** What people see; by default its `host`. */
  readonly name?: string;
  /** Requests per second other than watches and events, in the long term and at once; both above 0. */
  readonly qps: number;
  readonly burst: number;
  readonly userAgent: string;
  /** Has `HTTPS_PROXY` and the like. */
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: ApiRequestMetrics;
}

/** How long a server may take to answer a trivial request before it counts as dead. */
const PROBE_DEADLINE_MS = 10_000;

/** How long a response other than a watch may be silent. Its length has no limit, because of slow links. */
const SILENCE_MS = 60_000;

/** Decompressed. A page has 500 objects of at most 1.5 MiB each, and nearly always of a few KiB. */
const BODY_MAX_BYTES = 256 * 1024 * 1024;

const REFUSAL_MAX_BYTES = 64 * 1024;
const REFUSAL_DEADLINE_MS = 10_000;

interface Call {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

interface Route {
  readonly access: Access;
  readonly agent: Agent;
}

/**
 * The resources of one API server over HTTP/1.1, with one pool of keep-alive connections. Each watch has its own
 * connection, so that a slow list never delays it, and a connection that breaks ends one watch only.
 */
export class ApiClient implements Transport, Contact {
  readonly host: string;
  readonly name: string;
  readonly #options: ApiClientOptions;
  readonly #agents: AgentPool;
  readonly #bucket: TokenBucket;
  #lastContactAt: number | undefined;
  /** The route of the last answer. */
  #lastRoute: Route | undefined;
  #probe: Promise<void> | undefined;

  constructor(options: ApiClientOptions) {
    const { clock, qps, burst, env, log, server, name = server.host } = options;
    this.host = server.host;
    this.name = name;
    this.#options = options;
    this.#agents = new AgentPool({ server, env, log });
    this.#bucket = new TokenBucket({ clock, ratePerSecond: qps, burst });
  }

  get lastContactAt(): number | undefined {
    return this.#lastContactAt;
  }

  /** Where the API server is. */
  get servers(): readonly Endpoint[] {
    return this.#agents.servers;
  }

  async watch(path: string, signal: AbortSignal): Promise<WatchStream> {
    const response = await this.#send({ method: 'GET', path, signal });
    await this.#expectJson(response, signal);
    return { body: this.#read(response, signal), server: this };
  }

  async get(path: string, signal: AbortSignal): Promise<unknown> {
    await this.#bucket.take(signal);
    // As client-go does. The API server compresses answers of more than 128 KiB, and never a watch.
    return await this.#call({ method: 'GET', path, headers: { 'Accept-Encoding': 'gzip' }, signal });
  }

  /** Posts an event. Not retried. Not subject to the rate limit: client-go, too, has another client for events. */
  post(path: string, body: unknown, signal: AbortSignal): Promise<unknown> {
    const headers = { 'Content-Type': 'application/json' };
    return this.#call({ method: 'POST', path, headers, body: JSON.stringify(body), signal });
  }

  probe(): Promise<void> {
    this.#probe ??= this.#askForLife().finally(() => {
      this.#probe = undefined;
    });
    return this.#probe;
  }

  /** Breaks every connection. */
  close(): void {
    this.#agents.close();
  }

  /**
   * Requests `/livez`: every user may, and no flow control delays it (FlowSchema `probes`). Uses the last route that
   * worked, because bad new credentials say nothing about the server.
   */
  async #askForLife(): Promise<void> {
    const seconds = PROBE_DEADLINE_MS / 1_000;
    const late = new ApiError('unreachable', `${this.host}: no answer to a probe within ${seconds} s`);
    await withinSilence({ clock: this.#options.clock, ms: PROBE_DEADLINE_MS, late }, async (signal) => {
      const response = await this.#send({ method: 'GET', path: '/livez', signal }, this.#lastRoute);
      // A connection can be reused once its response is read to the end.
      await collect(this.#read(response, signal), REFUSAL_MAX_BYTES);
    });
  }

  async #call(call: Call): Promise<unknown> {
    const late = new ApiError('incomplete', `no more of the answer came for ${SILENCE_MS / 1_000} s`);
    const deadline = { clock: this.#options.clock, ms: SILENCE_MS, late, outer: call.signal };
    return await withinSilence(deadline, async (signal, onProgress) => {
      const response = await this.#send({ ...call, signal });
      await this.#expectJson(response, signal);
      const text = await collect(this.#read(response, signal), BODY_MAX_BYTES, onProgress);
      const value = parseJson(text);
      if (value !== undefined) return value;
      throw new ApiError('garbage', `the answer is not JSON: ${JSON.stringify(text.slice(0, 60))}`);
    });
  }

  /** Resolves with the head of the response, whatever its status. */
  async #send({ method, path, body, headers, signal }: Call, lastRoute?: Route): Promise<IncomingMessage> {
    const { clock, metrics, userAgent } = this.#options;
    const route = lastRoute ?? (await unlessAborted(this.#route(), signal));
    const { access, agent } = route;
    const url = new URL(access.server.href.replace(/\/$/, '') + path);
    const all = { Accept: 'application/json', 'User-Agent': userAgent, ...headers, ...access.headers };
    const beganAt = clock.now();
    let code = '<error>';
    try {
      const response = await sendRequest({ method, url, headers: all, body, agent }, { clock, signal });
      code = String(response.statusCode);
      this.#lastContactAt = clock.now();
      this.#lastRoute = route;
      return response;
    } finally {
      metrics.requestDone({ method, host: this.host, code, durationMs: clock.now() - beganAt });
    }
  }

  async #route(): Promise<Route> {
    const access = await this.#options.access.current();
    return { access, agent: this.#agents.agentFor(access) };
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
    const late = new ApiError('incomplete', 'the refusal was not complete');
    const deadline = { clock: this.#options.clock, ms: REFUSAL_DEADLINE_MS, late, outer: signal };
    const body = withinSilence(deadline, (inner) => collect(this.#read(response, inner), REFUSAL_MAX_BYTES));
    const text = await body.catch(() => '');
    const { message, retryAfterMs, isStatusObject } = readStatus(isJson ? parseJson(text) : undefined);
    // A proxy in between may pass on a request with credentials that have expired as one without.
    const isAnonymous = status === 403 && message?.includes('system:anonymous');
    if (status === 401 || isAnonymous) this.#options.access.refused();
    const seconds = Number(headers['retry-after']);
    throw new ApiError('status', `HTTP ${status}${message === undefined ? '' : `: ${message}`}`, {
      status,
      isStatusObject,
      retryAfterMs: seconds > 0 ? seconds * 1_000 : retryAfterMs,
    });
  }

  #read(response: IncomingMessage, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const onData = () => {
      this.#lastContactAt = this.#options.clock.now();
    };
    return readBody(response, { host: this.host, signal, onData });
  }
}
