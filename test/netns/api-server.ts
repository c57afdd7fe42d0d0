import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Namespace } from './topology.ts';

/** The fake API server in a namespace, with which it ends. */
export class ApiServer {
  readonly url: string;
  readonly #process: ChildProcess;

  private constructor(server: ChildProcess, url: string) {
    this.#process = server;
    this.url = url;
  }

  /** At this address, or on loopback. */
  static async start(namespace: Namespace, host: string = '127.0.0.1'): Promise<ApiServer> {
    const program = fileURLToPath(new URL('programs/api-server.ts', import.meta.url));
    const server = namespace.spawn([process.execPath, program, host], {}, ['pipe', 'pipe', 'inherit']);
    for await (const url of createInterface({ input: server.stdout! })) return new ApiServer(server, url);
    throw new Error('the API server has ended before it began');
  }

  /** Creates or replaces them. */
  set(...objects: readonly object[]): void {
    for (const object of objects) this.#process.stdin?.write(`${JSON.stringify(object)}\n`);
  }

  /** As a real server does now and then. */
  endWatches(): void {
    this.#process.stdin?.write('\n');
  }
}
