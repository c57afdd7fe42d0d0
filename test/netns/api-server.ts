import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Namespace } from './topology.ts';

/** The fake API server in a namespace, with which it ends. */
export class ApiServer {
  readonly url: string;
  readonly #process: ChildProcess;
  readonly #unanswered: (() => void)[] = [];

  private constructor(server: ChildProcess, url: string, answers: Interface) {
    this.#process = server;
    this.url = url;
    answers.on('line', () => this.#unanswered.shift()?.());
  }

  /** At this address, or on loopback, and any port. With a `token`, it refuses requests without that. */
  static async start(
    namespace: Namespace,
    host: string = '127.0.0.1',
    { port = 0, token }: { readonly port?: number; readonly token?: string } = {},
  ): Promise<ApiServer> {
    const program = fileURLToPath(new URL('programs/api-server.ts', import.meta.url));
    const args = [host, `${port}`, ...(token === undefined ? [] : [token])];
    const server = namespace.spawn([process.execPath, program, ...args], {}, ['pipe', 'pipe', 'inherit']);
    const answers = createInterface({ input: server.stdout! });
    const [url] = await Promise.race([once(answers, 'line'), once(answers, 'close')]);
    if (url === undefined) throw new Error('the API server has ended before it began');
    return new ApiServer(server, url, answers);
  }

  /** Creates or replaces them. Resolves when it has them. */
  async set(...objects: readonly object[]): Promise<void> {
    await Promise.all(objects.map((object) => this.#tell(JSON.stringify(object))));
  }

  /** Connections are accepted, and nothing is answered until {@link answerAgain}. */
  hang(): void {
    this.#process.kill('SIGSTOP');
  }

  answerAgain(): void {
    this.#process.kill('SIGCONT');
  }

  /** Resolves when nobody listens at its address any more. */
  async stop(): Promise<void> {
    const gone = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    await gone;
  }

  /** As a real server does now and then. */
  endWatches(): void {
    void this.#tell('');
  }

  #tell(line: string): Promise<void> {
    return new Promise((resolve) => {
      this.#unanswered.push(resolve);
      this.#process.stdin?.write(`${line}\n`);
    });
  }
}
