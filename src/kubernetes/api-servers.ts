import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { ApiServerStatus, SourceEvent } from '../model/source.ts';
import type { Clock, Random, Timer } from '../util/clock.ts';
import { LastingFault } from '../util/lasting-fault.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';
import { unlessAborted } from '../util/wait.ts';
import type { ApiClient, Transport, WatchStream } from './api-client.ts';
import { ApiError, isForeign } from './api-error.ts';
import { askWhichCluster, ClusterFacts } from './cluster.ts';

interface ApiServersOptions {
  /** In order of preference; at least one. */
  readonly clients: readonly ApiClient[];
  /** Makes a client of a server that the cluster itself names. Absent: those are not used. */
  readonly clientOf?: ((server: Endpoint) => ApiClient) | undefined;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** The others are asked again after this time, or after up to twice as long, so that not all nodes return in step. */
const LOOK_MIN_MS = 300_000;

/** Of those that the cluster names. Each costs a connection now and then, and anybody may have written that list. */
const MAX_LEARNED = 8;

/** Ends a watch in an orderly way, for the reflector goes on from its last version elsewhere. */
const LEFT = new ApiError('unreachable', 'another API server is used now');

class Server {
  readonly client: ApiClient;
  readonly isLearned: boolean;
  readonly fault: LastingFault;
  /** It has shown that it is of this cluster, or there was no other to compare it with, and it has not failed since. */
  isProven = false;
  proof: Promise<void> | undefined;
  failure: ApiServerStatus['failure'];
  /** Ends its watches. */
  left = new AbortController();

  constructor(client: ApiClient, { isLearned, log }: { readonly isLearned: boolean; readonly log: Log }) {
    this.client = client;
    this.isLearned = isLearned;
    this.fault = new LastingFault({
      log,
      begun: 'An API server cannot be used; the others are asked',
      over: 'An API server can be used again',
    });
  }
}

/**
 * The API servers of one cluster, and which of them is used now: the first by preference that works, for all requests
 * alike. Watches go on at another server without a gap, because versions are the cluster's
 * (docs/adr/0042-several-api-servers.md).
 */
export class ApiServers implements Transport {
  readonly #options: ApiServersOptions;
  readonly #cluster = new ClusterFacts();
  /** Where the cluster's servers were, until the cluster itself says where they are. */
  #recalled: readonly Endpoint[] = [];
  /** What the first server has said that was asked; then what the watched Service says. */
  #firstUid: string | undefined;
  /** In order of preference; those that the cluster names come last. */
  #servers: readonly Server[];
  #used: Server;
  #usedSince: number | undefined;
  #nextLook: Timer | undefined;
  readonly #closed = new AbortController();

  constructor(options: ApiServersOptions) {
    const { clients, log } = options;
    this.#options = options;
    this.#servers = clients.map((client) => new Server(client, { isLearned: false, log }));
    const [preferred] = this.#servers;
    if (preferred === undefined) throw new Error('there is no API server');
    this.#used = preferred;
  }

  /** `host:port` of the server that is used, or tried first; its URL where another entry has the same. */
  get host(): string {
    return this.#used.client.name;
  }

  /** `Clock.now()` of the last byte from any of them. */
  get lastContactAt(): number | undefined {
    const all = this.#servers.flatMap(({ client }) => client.lastContactAt ?? []);
    return all.length === 0 ? undefined : Math.max(...all);
  }

  /** Where they all are. */
  get endpoints(): readonly Endpoint[] {
    return this.#servers.flatMap(({ client }) => client.servers);
  }

  get clients(): readonly ApiClient[] {
    return this.#servers.map(({ client }) => client);
  }

  /** The UID of the Service `default/kubernetes`, by which clusters differ; `undefined` until it is known. */
  get cluster(): string | undefined {
    return this.#cluster.uid ?? this.#firstUid;
  }

  /** In order of preference. */
  status(): readonly ApiServerStatus[] {
    return this.#servers.map((server) => ({
      server: server.client.name,
      ...(server === this.#used && this.#usedSince !== undefined && { usedSince: this.#usedSince }),
      ...(server.failure !== undefined && { failure: server.failure }),
    }));
  }

  /** Takes from the changes of watched objects which cluster this is, and where its servers are. */
  learn(changes: readonly SourceEvent[]): void {
    if (this.#cluster.apply(changes)) this.#knowServers();
  }

  /**
   * Takes from objects of an earlier process where the servers were. Not which cluster it was, as that decides which
   * servers are refused.
   */
  recall(objects: readonly SourceEvent[]): void {
    const before = new ClusterFacts();
    before.apply(objects);
    this.#recalled = before.servers;
    this.#knowServers();
  }

  watch(path: string, signal: AbortSignal): Promise<WatchStream> {
    return this.#onAny(signal, async (server) => {
      const left = server.left.signal;
      const stream = await server.client.watch(path, AbortSignal.any([signal, left]));
      return { ...stream, body: this.#whileUsed(server, stream.body, { left, signal }) };
    });
  }

  get(path: string, signal: AbortSignal): Promise<unknown> {
    return this.#onAny(signal, (server) => server.client.get(path, signal));
  }

  /** Sent to another server only when the one before has not got it. */
  post(path: string, body: unknown, signal: AbortSignal): Promise<unknown> {
    return this.#onAny(signal, (server) => server.client.post(path, body, signal), { isRepeatable: false });
  }

  /** Breaks every connection. */
  close(): void {
    this.#closed.abort(new Error('closed'));
    this.#nextLook?.cancel();
    for (const { client } of this.#servers) client.close();
  }

  /** Asks one server after another, each once. Rejects with what was wrong with the first. */
  async #onAny<T>(
    signal: AbortSignal,
    ask: (server: Server) => Promise<T>,
    { isRepeatable = true }: { readonly isRepeatable?: boolean } = {},
  ): Promise<T> {
    const tried = new Set<Server>();
    let failure: unknown;
    for (let server = this.#next(tried); server !== undefined; server = this.#next(tried)) {
      tried.add(server);
      let isTrial = true;
      try {
        await this.#prove(server, signal);
        isTrial = false;
        const answer = await this.#ask(server, ask, signal);
        this.#use(server);
        return answer;
      } catch (error) {
        const mayBeDone = !isRepeatable && !isTrial && !isUnsent(error);
        if (signal.aborted || mayBeDone || !isFault(error, { isTrial })) throw error;
        if (error !== LEFT) this.#failed(server, error);
        failure ??= error;
      }
    }
    throw failure;
  }

  /** An old API server answers 404 for a resource that it does not have, and so does any web server. */
  async #ask<T>(server: Server, ask: (server: Server) => Promise<T>, signal: AbortSignal): Promise<T> {
    try {
      return await ask(server);
    } catch (error) {
      if (isForeign(error)) await this.#proveNow(server, signal);
      throw error;
    }
  }

  /** The one that is used comes first, and those that fail come last: each may cost the deadline of a connection. */
  #next(tried: ReadonlySet<Server>): Server | undefined {
    const rank = (server: Server) => (server.failure === undefined ? 0 : 2) + (server === this.#used ? 0 : 1);
    const rest = this.#servers.filter((server) => !tried.has(server));
    return rest.sort((a, b) => rank(a) - rank(b))[0];
  }

  /** With only one there is nothing to take it for, and it may be older than its Service. */
  async #prove(server: Server, signal: AbortSignal): Promise<void> {
    if (server.isProven || this.#servers.length === 1) return;
    await this.#proveNow(server, signal);
  }

  async #proveNow(server: Server, signal: AbortSignal): Promise<void> {
    server.proof ??= this.#compare(server).finally(() => {
      server.proof = undefined;
    });
    await unlessAborted(server.proof, signal);
    server.isProven = true;
  }

  async #compare({ client }: Server): Promise<void> {
    const question = askWhichCluster(client, { clock: this.#options.clock, signal: this.#closed.signal });
    const uid = await question.catch(notOfApi);
    this.#firstUid ??= uid;
    if (uid === this.cluster || this.#servers.length === 1) return;
    const problem = `it is of another cluster: its Service default/kubernetes has the UID ${uid}, not ${this.cluster}`;
    throw new ApiError('garbage', `${client.host}: ${problem}`);
  }

  /** It works. */
  #use(server: Server): void {
    const { clock, log } = this.#options;
    server.isProven = true;
    server.failure = undefined;
    server.fault.succeeded({ server: server.client.name });
    const before = this.#used;
    if (server !== before) {
      log.info('Another API server is used from now on', { server: server.client.name, before: before.client.name });
    } else if (this.#usedSince !== undefined) return;
    this.#used = server;
    this.#usedSince = clock.wallNow();
    for (const each of this.#servers) if (each !== server) leave(each);
    this.#lookLater();
  }

  #failed(server: Server, error: unknown): void {
    server.isProven = false;
    if (this.#servers.length === 1) return;
    const err = messageOf(error).replace(`${server.client.host}: `, '');
    server.failure = { since: server.failure?.since ?? this.#options.clock.wallNow(), err };
    server.fault.failed(err, { server: server.client.name });
  }

  /** A watch of a server that another one has replaced ends, and so does one whose reader says that it is silent. */
  async *#whileUsed(
    server: Server,
    body: AsyncIterable<Uint8Array>,
    { left, signal }: { readonly left: AbortSignal; readonly signal: AbortSignal },
  ): AsyncGenerator<Uint8Array> {
    try {
      yield* body;
    } catch (error) {
      const isSilent = isFault(signal.reason, { isTrial: false });
      if (isSilent) this.#failed(server, error);
      const isOver = left.aborted || (isSilent && this.#servers.length > 1);
      if (!isOver) throw error;
      leave(server);
    }
  }

  #lookLater(): void {
    const { clock, random } = this.#options;
    this.#nextLook?.cancel();
    if (this.#servers.length === 1) return;
    this.#nextLook = clock.after(LOOK_MIN_MS * (1 + random()), () => void this.#look());
  }

  /** Asks all the others how they are, and returns to one that is preferred. Never rejects. */
  async #look(): Promise<void> {
    const preference = (server: Server) => this.#servers.indexOf(server);
    for (const server of this.#servers) {
      if (server === this.#used || this.#closed.signal.aborted) continue;
      try {
        await this.#compare(server);
        server.failure = undefined;
        server.fault.succeeded({ server: server.client.name });
        if (preference(server) < preference(this.#used)) this.#use(server);
      } catch (error) {
        if (!this.#closed.signal.aborted) this.#failed(server, error);
      }
    }
    if (!this.#closed.signal.aborted) this.#lookLater();
  }

  #knowServers(): void {
    const { clientOf, log } = this.#options;
    if (clientOf === undefined) return;
    const given = this.#servers.filter(({ isLearned }) => !isLearned);
    const known = new Map(this.#servers.map((server) => [server.client.host, server]));
    const learned = new Map<string, Server>();
    const { servers } = this.#cluster;
    for (const endpoint of servers.length > 0 ? servers : this.#recalled) {
      const { host } = new URL(`https://${endpointName(endpoint)}`);
      const server = known.get(host) ?? new Server(clientOf(endpoint), { isLearned: true, log });
      if (server.isLearned && learned.size < MAX_LEARNED) learned.set(host, server);
    }
    const before = this.#servers;
    this.#servers = [...given, ...learned.values()];
    for (const server of before) {
      if (this.#servers.includes(server)) continue;
      // The one that is used goes on until it fails.
      if (server === this.#used) this.#servers = [...this.#servers, server];
      else server.client.close();
    }
    if (before.length === 1) this.#lookLater();
  }
}

function leave(server: Server): void {
  server.left.abort(LEFT);
  server.left = new AbortController();
}

/** Without the status, by which a reader would take it for the word of an API server. */
function notOfApi(error: unknown): never {
  if (!isForeign(error)) throw error;
  const advice = 'check that its port, http:// or https://, and HTTPS_PROXY are right';
  throw new ApiError('garbage', `${error.message}, which is not how an API server answers; ${advice}`);
}

function isUnsent(error: unknown): boolean {
  return error instanceof ApiError && error.isUnsent;
}

/**
 * Whether another server may do better. A server on trial is not known to be an API server of this cluster, so only
 * missing credentials say something of all. After that, credentials and what they may not do are the same everywhere.
 */
function isFault(error: unknown, { isTrial }: { readonly isTrial: boolean }): boolean {
  if (!(error instanceof ApiError)) return false;
  const { code, status = 0 } = error;
  if (isTrial) return code !== 'credentials';
  return code === 'unreachable' || code === 'garbage' || (code === 'status' && status >= 500);
}
