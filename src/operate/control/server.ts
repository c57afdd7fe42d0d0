import { createServer, type Server, type Socket } from 'node:net';
import type { Timer } from '../../util/clock.ts';
import { messageOf } from '../../util/text.ts';
import type { Answerer } from './answer.ts';
import { serveConnection } from './connection.ts';
import { listenAt, type SocketFile } from './socket-file.ts';

export interface ControlServerOptions extends Answerer {
  readonly path: string;
}

/** People and their dashboards; further ones are closed at once. */
export const MAX_CONNECTIONS = 16;
export const RETRY_MS = 5_000;

/** Answers operators on a Unix socket that only root and the program's own user can open. */
export class ControlServer {
  readonly #options: ControlServerOptions;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #underWay = 0;
  #attempt: Promise<void> | undefined;
  #file: SocketFile | undefined;
  #retry: Timer | undefined;
  #toldProblem: string | undefined;
  #closed = false;

  constructor(options: ControlServerOptions) {
    this.#options = options;
    this.#server = createServer((socket) => this.#serve(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#server.on('error', (error) => this.#failed(error));
  }

  /** Returns at once; whether and when the socket could be had is in the log. */
  start(): void {
    this.#attempt = this.#listen();
  }

  /** Stops listening, cuts answers off, gives up trying. Resolves when a successor can have the path. */
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
      if (err !== this.#toldProblem) {
        log.warn(
          `Cannot serve the control socket, so subcommands do not reach this process; trying again every ${RETRY_MS / 1_000} s`,
          { file: path, err },
        );
      }
      this.#toldProblem = err;
      this.#retry = clock.after(RETRY_MS, () => this.start());
    }
  }

  /** A failure to listen is told by whoever tries to. */
  #failed(error: Error): void {
    const { path, log } = this.#options;
    if (this.#server.listening)
      log.warn('Cannot accept a connection on the control socket', { file: path, err: error.message });
  }

  #serve(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    // A client that has left may still be waited for: what it has asked for takes its time.
    if (this.#underWay === MAX_CONNECTIONS) {
      socket.destroy();
      return;
    }
    this.#underWay++;
    void serveConnection(socket, this.#options).finally(() => this.#underWay--);
  }
}
