import { createServer, type Server, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import type { ServicePortName } from '../../model/service.ts';
import { partsOf } from '../../model/service.ts';
import type { Operations, ServiceFilter, View } from '../../model/view.ts';
import type { Clock, Timer } from '../../util/clock.ts';
import { LineSplitter, LineTooLongError } from '../../util/line-splitter.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import { eachInSlices } from '../../util/wait.ts';
import type { ConnectionFeed } from '../connection-log/feed.ts';
import { Tail } from '../connection-log/tail.ts';
import { inPieces } from '../view/view.ts';
import { type EndpointUsers, endpointUsers } from './endpoint-users.ts';
import { type Commands, decodeRequest, READ_TIMEOUT_MS, type Request, RequestError } from './protocol.ts';
import { listenAt, type SocketFile } from './socket-file.ts';

/* The server's side of the control socket: the running program answers operators. */

interface ControlServerOptions {
  readonly path: string;
  /** Requests wait for it, because earlier answers would be wrong. Never rejects. */
  readonly known?: Promise<void>;
  readonly view: View;
  readonly operations: Operations;
  readonly feed: Pick<ConnectionFeed, 'subscribe' | 'dropped'>;
  readonly log: Log;
  readonly clock: Clock;
}

/** Further connections are closed at once. */
export const MAX_CONNECTIONS = 16;
/** Of these connections, so that others find room. They have no time limit, because a person may pause the output. */
export const MAX_TAILS = 4;
export const RETRY_MS = 5_000;
export const MAX_REQUEST_BYTES = 64 * 1024;
export const REQUEST_TIMEOUT_MS = 5_000;

/** Listens on a Unix socket that only root and the program's own user can open. */
export class ControlServer {
  readonly #options: ControlServerOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Answers under way, also of clients that have left. */
  #underWay = 0;
  #tails = 0;
  #attempt: Promise<void> | undefined;
  #file: SocketFile | undefined;
  #retry: Timer | undefined;
  #loggedProblem: string | undefined;
  #closed = false;

  constructor(options: ControlServerOptions) {
    this.#options = options;
    this.#server = createServer((socket) => this.#accept(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.on('error', (error) => {
      const fields = { file: options.path, err: error.message };
      // A failure to listen is reported by #listen.
      if (this.#server.listening) options.log.warn('Cannot accept a connection on the control socket', fields);
    });
  }

  /** Returns at once; the log says whether and when the socket is served. */
  start(): void {
    this.#attempt = this.#listen();
  }

  /** Stops listening and retrying, and cuts answers off. Resolves when a successor can use the path. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#retry?.cancel();
    await this.#attempt;
    this.#file?.release();
    for (const socket of this.#sockets) socket.destroy();
    if (this.#server.listening) await new Promise((resolve) => this.#server.close(resolve));
  }

  async #listen(): Promise<void> {
    const { path, clock, log } = this.#options;
    try {
      this.#file = await listenAt(this.#server, path);
      log.info('Serving the control socket', { file: path });
    } catch (error) {
      if (this.#closed) return;
      const err = messageOf(error);
      if (err !== this.#loggedProblem) {
        log.warn(
          `Cannot serve the control socket, so subcommands do not reach this process; retrying every ${RETRY_MS / 1_000} s`,
          { file: path, err },
        );
      }
      this.#loggedProblem = err;
      this.#retry = clock.after(RETRY_MS, () => this.start());
    }
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    // The client has left; its answer ends when it finds the socket closed.
    socket.on('error', () => {});
    if (this.#underWay === MAX_CONNECTIONS) {
      socket.destroy();
      return;
    }
    this.#underWay++;
    void this.#serve(socket).finally(() => this.#underWay--);
  }

  /** Takes one request and answers it. Never rejects; the socket is closed in the end. */
  async #serve(socket: Socket): Promise<void> {
    const { clock, log, known } = this.#options;
    try {
      const timeout = clock.after(REQUEST_TIMEOUT_MS, () => socket.destroy());
      const line = await firstLine(socket).finally(() => timeout.cancel());
      if (line === undefined) return;
      const request = decodeRequest(line);
      await known;
      const closed = new AbortController();
      socket.on('close', () => closed.abort());
      if (socket.destroyed) return;
      const isPatient = request.command === 'tail';
      for await (const piece of this.#answer(request, closed.signal)) {
        if (!(await this.#write(socket, `{"piece":${piece}}\n`, isPatient))) return;
        // Node's own turn: a timer of the clock would add a millisecond to each piece.
        await setImmediate();
      }
      await this.#write(socket, '{"end":true}\n');
    } catch (error) {
      if (socket.destroyed) return;
      if (!(error instanceof RequestError)) {
        log.error('Cannot answer a request on the control socket', { err: messageOf(error) });
      }
      await this.#write(socket, `${JSON.stringify({ error: messageOf(error) })}\n`);
    } finally {
      if (!socket.destroyed) {
        // The client has limited time to read the rest.
        const timeout = clock.after(READ_TIMEOUT_MS, () => socket.destroy());
        socket.on('close', () => timeout.cancel()).destroySoon();
      }
    }
  }

  /** Executes a request, and yields each piece of the answer as JSON. */
  async *#answer(request: Request, closed: AbortSignal): AsyncGenerator<string> {
    const { view, operations, log, clock } = this.#options;
    switch (request.command) {
      case 'node':
        yield JSON.stringify(await view.node());
        return;
      case 'services':
        for (const rows of inPieces(view.services(request.params), clock, JSON.stringify)) yield `[${rows.join(',')}]`;
        return;
      case 'connections':
        for await (const piece of view.connections(request.params)) yield JSON.stringify(piece);
        return;
      case 'tail':
        yield* this.#tail(request.params, closed);
        return;
      case 'explain':
        yield JSON.stringify(await view.explain(request.params));
        return;
      case 'drain':
        yield JSON.stringify(await this.#drain(request.params));
        return;
      case 'undrain': {
        const { endpoint } = request.params;
        const wasDrained = operations.undrain(endpoint);
        if (wasDrained) {
          log.info('An operator gave an endpoint back; it gets new connections', { backend: endpointName(endpoint) });
        }
        yield JSON.stringify({ wasDrained } satisfies Commands['undrain']['piece']);
        return;
      }
      case 'weight': {
        const { endpoint, weight } = request.params;
        const before = operations.weightOf(endpoint);
        if (before === undefined) await this.#usersOf(endpoint, 'so it has no weight to set; list shows the endpoints');
        if (!operations.setWeight(endpoint, weight)) throw tooMany();
        const fields = { backend: endpointName(endpoint), ...(weight !== undefined && { weight }) };
        if (weight !== undefined) log.info('An operator set the weight of an endpoint', fields);
        else if (before !== undefined) log.info('An operator took back the weight of an endpoint', fields);
        yield JSON.stringify({ ...(before !== undefined && { before }) } satisfies Commands['weight']['piece']);
        return;
      }
      case 'log-level': {
        const { verbosity } = request.params;
        operations.setVerbosity(verbosity);
        log.info('An operator changed how much the log says', { verbosity });
        yield '{}';
        return;
      }
    }
  }

  async #drain({ endpoint, isAgain, forced }: Commands['drain']['params']): Promise<EndpointUsers> {
    const { operations, log } = this.#options;
    const unknown = 'so nothing is drained; list shows the endpoints, and --force drains it before a Service gets it';
    const before = await this.#usersOf(endpoint, isAgain || forced ? undefined : unknown);
    if (isAgain) return before;
    if (!operations.setWeight(endpoint, 0)) throw tooMany();
    log.info('An operator drained an endpoint; it gets no new connections', { backend: endpointName(endpoint) });
    return before;
  }

  /** Throws where no Service has the endpoint, mostly a slip of the operator, when given what that means. */
  async #usersOf(endpoint: Endpoint, unknown?: string): Promise<EndpointUsers> {
    const { view, clock } = this.#options;
    const found = await endpointUsers(endpoint, view, clock);
    if (found.users.length > 0 || unknown === undefined) return found;
    throw new RequestError(`no Service that this node serves has the endpoint ${endpointName(endpoint)}, ${unknown}`);
  }

  async *#tail(filter: Commands['tail']['params'], closed: AbortSignal): AsyncGenerator<string> {
    const { feed, clock } = this.#options;
    if (this.#tails === MAX_TAILS)
      throw new RequestError(`${MAX_TAILS} others follow the connections already; end one`);
    this.#tails++;
    let unsubscribe = () => {};
    try {
      const isSelected = await this.#selected(filter);
      const tail = new Tail({
        clock,
        isWanted: ({ name }) => isSelected(name),
        onDropped: (count) => feed.dropped('tail', count),
      });
      unsubscribe = feed.subscribe(tail);
      for await (const piece of tail.pieces(closed)) yield JSON.stringify(piece);
    } finally {
      unsubscribe();
      this.#tails--;
    }
  }

  /** Throws when there is no such Service. A number of a port stands for the ports that have it now. */
  async #selected({ port, ...filter }: Commands['tail']['params']): Promise<(name: ServicePortName) => boolean> {
    const { namespace, service } = filter;
    if (namespace === undefined && service === undefined) return () => true;
    const names = new Set<ServicePortName>();
    const { view, clock } = this.#options;
    await eachInSlices(clock, view.services({ ...filter, summary: true }), (each) => {
      if (port === undefined || each.portName === port || String(each.port) === port) names.add(each.name);
    });
    if (names.size === 0) throw new RequestError(`no Service that this node serves matches ${described(filter, port)}`);
    if (port !== undefined) return (name) => names.has(name);
    return (name) => {
      const parts = partsOf(name);
      return (namespace ?? parts.namespace) === parts.namespace && (service ?? parts.service) === parts.service;
    };
  }

  /** Resolves when the client has read enough, or with `false` when the connection is closed. */
  #write(socket: Socket, text: string, isPatient = false): boolean | Promise<boolean> {
    if (socket.destroyed) return false;
    if (socket.write(text)) return true;
    return new Promise((resolve) => {
      const timeout = isPatient ? undefined : this.#options.clock.after(READ_TIMEOUT_MS, () => socket.destroy());
      const settle = () => {
        timeout?.cancel();
        socket.off('drain', settle).off('close', settle);
        resolve(!socket.destroyed);
      };
      socket.on('drain', settle).on('close', settle);
    });
  }
}

function described({ namespace = '*', service = '*' }: ServiceFilter, port: string | undefined): string {
  return `${namespace}/${service}${port === undefined ? '' : `:${port}`}: names must match exactly and are case-sensitive`;
}

/** `undefined` when the client has left without a request. */
async function firstLine(socket: Socket): Promise<string | undefined> {
  const lines = new LineSplitter(MAX_REQUEST_BYTES);
  try {
    for await (const chunk of socket.iterator({ destroyOnReturn: false }))
      for (const line of lines.push(chunk)) return line;
    return undefined;
  } catch (error) {
    throw error instanceof LineTooLongError ? new RequestError(error.message) : error;
  }
}

function tooMany(): RequestError {
  return new RequestError(
    'too many endpoints are drained or have a weight already; give back those that are gone with undrain or weight',
  );
}
