import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';

interface ApiObject {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace: string };
}

interface Change {
  readonly version: number;
  readonly path: string;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: object;
}

interface Watch {
  readonly server: FakeApiServer;
  readonly path: string;
  readonly response: ServerResponse;
}

export type Misdeed = (request: IncomingMessage, response: ServerResponse) => void;

export interface FakeApiServerOptions {
  readonly tls?: { readonly key: string; readonly cert: string; readonly ca?: string };
  /** `false`: refuses streamed lists, as servers before 1.27 do. */
  readonly streams?: boolean;
  /** By default, any port of loopback that is free. */
  readonly host?: string;
  readonly port?: number;
  /** Collections that it does not have. */
  readonly lacks?: readonly string[];
  /** Another server of the same cluster: both have the same objects and versions. */
  readonly beside?: FakeApiServer;
  /** The UID of the Service default/kubernetes, by which clusters differ. */
  readonly cluster?: string;
}

/** What the API servers of a cluster share: etcd. */
class Memory {
  readonly objects = new Map<string, Map<string, object>>(COLLECTIONS.map((path) => [path, new Map()]));
  readonly history: Change[] = [];
  readonly watches = new Set<Watch>();
  version = 100;
  compacted = 0;
}

const CLUSTER_SERVICE = '/api/v1/namespaces/default/services';
const COLLECTIONS = ['/api/v1/services', '/api/v1/endpoints', '/apis/discovery.k8s.io/v1/endpointslices'];

/**
 * An API server with a memory: it lists, streams lists, pages, watches and forgets versions as a real one, and
 * misbehaves for single requests when told to.
 */
export class FakeApiServer {
  readonly #server: Server;
  readonly #options: FakeApiServerOptions;
  readonly #memory: Memory;
  readonly #watches = new Set<Watch>();
  readonly #misdeeds: { readonly path: string; readonly misdeed: Misdeed }[] = [];
  readonly #sockets = new Set<Socket>();
  /** Whether a request may pass; else it gets 401, or 403 when it has no credentials. */
  authorize: (headers: IncomingMessage['headers']) => boolean = () => true;
  port = 0;
  /** It takes connections and requests, and says nothing. */
  isHung = false;
  /** Connections that were ever made. */
  connections = 0;
  readonly requests: { readonly method: string; readonly url: URL; readonly headers: IncomingMessage['headers'] }[] =
    [];

  private constructor(options: FakeApiServerOptions) {
    this.#options = options;
    this.#memory = options.beside === undefined ? new Memory() : options.beside.#memory;
    const handle = (request: IncomingMessage, response: ServerResponse) => this.#handle(request, response);
    this.#server =
      options.tls === undefined
        ? createHttpServer(handle)
        : createHttpsServer({ ...options.tls, requestCert: options.tls.ca !== undefined }, handle);
    // As good as never, as a real one; Node's 5 s may pass while a test is held up.
    this.#server.keepAliveTimeout = 0;
    this.#server.on('connection', (socket: Socket) => {
      this.connections += 1;
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  static async start(options: FakeApiServerOptions = {}): Promise<FakeApiServer> {
    const server = new FakeApiServer(options);
    await new Promise<void>((resolve) => server.#server.listen(options.port ?? 0, server.#host, resolve));
    server.port = (server.#server.address() as AddressInfo).port;
    return server;
  }

  get #host(): string {
    return this.#options.host ?? '127.0.0.1';
  }

  get url(): string {
    return `${this.#options.tls === undefined ? 'http' : 'https'}://${this.#host}:${this.port}`;
  }

  get openConnections(): number {
    return this.#sockets.size;
  }

  get watches(): number {
    return this.#watches.size;
  }

  /** Replaces the certificate for new connections. */
  setCertificate(tls: { readonly key: string; readonly cert: string; readonly ca?: string }): void {
    (this.#server as ReturnType<typeof createHttpsServer>).setSecureContext(tls);
  }

  set(object: ApiObject): void {
    const { path, objects, key } = this.#find(object);
    const type = objects.has(key) ? 'MODIFIED' : 'ADDED';
    this.#memory.version += 1;
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#memory.version) } };
    objects.set(key, stored);
    this.#publish({ version: this.#memory.version, path, type, object: stored });
  }

  delete(object: ApiObject): void {
    const { path, objects, key } = this.#find(object);
    this.#memory.version += 1;
    const stored = {
      ...objects.get(key),
      metadata: { ...object.metadata, resourceVersion: String(this.#memory.version) },
    };
    objects.delete(key);
    this.#publish({ version: this.#memory.version, path, type: 'DELETED', object: stored });
  }

  /** Forgets all versions, as etcd does every five minutes. */
  compact(): void {
    this.#memory.compacted = this.#memory.version;
    this.#memory.history.length = 0;
  }

  /** The next request for a path with this beginning is answered so. */
  misbehave(path: string, misdeed: Misdeed): void {
    this.#misdeeds.push({ path, misdeed });
  }

  /** Drops all misdeeds that are still planned. */
  forgive(): void {
    this.#misdeeds.length = 0;
  }

  /** Writes something into every open watch of this collection. */
  inject(path: string, text: string): void {
    for (const watch of this.#watches) if (watch.path === path) watch.response.write(text);
  }

  /** Ends every watch in an orderly way. */
  endWatches(): void {
    for (const watch of this.#watches) {
      watch.response.end();
      this.#memory.watches.delete(watch);
    }
    this.#watches.clear();
  }

  /** Resets every connection. */
  resetConnections(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #find(object: ApiObject) {
    const path = COLLECTIONS[['Service', 'Endpoints', 'EndpointSlice'].indexOf(object.kind)] ?? '';
    const key = `${object.metadata.namespace}/${object.metadata.name}`;
    return { path, objects: this.#memory.objects.get(path) as Map<string, object>, key };
  }

  #publish(change: Change): void {
    this.#memory.history.push(change);
    for (const { server, path, response } of this.#memory.watches) {
      if (path === change.path && !server.isHung) writeEvent(response, change);
    }
  }

  #handle(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? '/', this.url);
    this.requests.push({ method: request.method ?? '', url, headers: request.headers });
    if (this.isHung) return;
    const at = this.#misdeeds.findIndex(({ path }) => url.pathname.startsWith(path));
    const planned = this.#misdeeds[at];
    if (planned !== undefined) {
      this.#misdeeds.splice(at, 1);
      planned.misdeed(request, response);
      return;
    }
    const objects = this.#memory.objects.get(url.pathname);
    if (!this.authorize(request.headers)) {
      if (request.headers.authorization !== undefined) sendStatus(response, 401, 'Unauthorized');
      else sendStatus(response, 403, 'forbidden: User "system:anonymous" cannot do this');
    } else if (this.#options.lacks?.includes(url.pathname)) sendPage(response, 404, '404 page not found\n');
    else if (url.pathname === '/livez') response.end('ok');
    else if (url.pathname === CLUSTER_SERVICE) this.#sayCluster(response);
    else if (objects === undefined) sendStatus(response, 404, 'the server could not find the requested resource');
    else if (url.searchParams.get('watch') === '1') this.#watch(url, response);
    else this.#list(url, response, [...objects.values()]);
  }

  #sayCluster(response: ServerResponse): void {
    const { cluster = 'cluster-1' } = this.#options;
    const metadata = { name: 'kubernetes', namespace: 'default', uid: cluster, resourceVersion: '1' };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.write(`${JSON.stringify({ type: 'ADDED', object: { kind: 'Service', apiVersion: 'v1', metadata } })}\n`);
  }

  #list(url: URL, response: ServerResponse, objects: object[]): void {
    const limit = Number(url.searchParams.get('limit') ?? objects.length);
    const from = Number(url.searchParams.get('continue') ?? 0);
    const next = from + limit < objects.length ? String(from + limit) : '';
    const metadata = { resourceVersion: String(this.#memory.version), continue: next };
    sendJson(response, 200, { kind: 'List', apiVersion: 'v1', metadata, items: objects.slice(from, from + limit) });
  }

  #watch(url: URL, response: ServerResponse): void {
    const { pathname: path, searchParams: query } = url;
    const isStream = query.get('sendInitialEvents') === 'true';
    if (isStream && this.#options.streams === false) {
      sendStatus(response, 422, 'sendInitialEvents is forbidden for watch');
      return;
    }
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    const version = Number(query.get('resourceVersion') ?? 0);
    if (isStream) {
      for (const object of this.#memory.objects.get(path)?.values() ?? []) {
        response.write(`${JSON.stringify({ type: 'ADDED', object })}\n`);
      }
      response.write(`${JSON.stringify(this.#bookmark({ 'k8s.io/initial-events-end': 'true' }))}\n`);
    } else if (version < this.#memory.compacted) {
      const status = { kind: 'Status', code: 410, message: `too old resource version: ${version}`, reason: 'Expired' };
      response.end(`${JSON.stringify({ type: 'ERROR', object: status })}\n`);
      return;
    } else {
      for (const change of this.#memory.history) {
        if (change.version > version && change.path === path) writeEvent(response, change);
      }
    }
    const watch: Watch = { server: this, path, response };
    this.#watches.add(watch);
    this.#memory.watches.add(watch);
    response.on('close', () => {
      this.#watches.delete(watch);
      this.#memory.watches.delete(watch);
    });
  }

  #bookmark(annotations: object): object {
    const metadata = { resourceVersion: String(this.#memory.version), annotations };
    return { type: 'BOOKMARK', object: { kind: 'Service', apiVersion: 'v1', metadata } };
  }
}

export function sendJson(response: ServerResponse, code: number, body: unknown, headers: Record<string, string> = {}) {
  response.writeHead(code, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(body));
}

/** As any web server, and as an API server that does not have a path. */
export function sendPage(response: ServerResponse, code: number, text: string): void {
  response.writeHead(code, { 'content-type': 'text/plain; charset=utf-8' });
  response.end(text);
}

export function sendStatus(
  response: ServerResponse,
  code: number,
  message: string,
  headers: Record<string, string> = {},
): void {
  sendJson(response, code, { kind: 'Status', apiVersion: 'v1', status: 'Failure', code, message }, headers);
}

function writeEvent(response: ServerResponse, { type, object }: Change): void {
  response.write(`${JSON.stringify({ type, object })}\n`);
}
