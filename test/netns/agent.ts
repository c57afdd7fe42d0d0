import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Operations } from './programs/agent.ts';
import type { TcpMode, UdpMode } from './programs/servers.ts';
import type { Namespace } from './topology.ts';

type Argument<Op extends keyof Operations> = Parameters<Operations[Op]>[0];
type Result<Op extends keyof Operations> = Awaited<ReturnType<Operations[Op]>>;

interface Call {
  resolve(result: never): void;
  reject(error: Error): void;
}

/** This process's end of one `programs/agent.ts`: every operation there is a typed call here. */
export class Agent {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #calls = new Map<number, Call>();
  #nextId = 1;
  #rest = '';
  #hasEnded = false;

  private constructor(name: string, child: ChildProcess) {
    this.name = name;
    this.#child = child;
    child.stdin?.on('error', () => {});
    child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#receive(text));
    child.on('close', () => {
      this.#hasEnded = true;
      for (const call of this.#calls.values()) call.reject(new Error(`the agent "${name}" has ended`));
    });
  }

  static start(namespace: Namespace, name: string): Agent {
    const program = fileURLToPath(new URL('programs/agent.ts', import.meta.url));
    return new Agent(name, namespace.spawn([process.execPath, program], {}, ['pipe', 'pipe', 'inherit']));
  }

  call<Op extends keyof Operations>(op: Op, args: Argument<Op>): Promise<Result<Op>> {
    if (this.#hasEnded) return Promise.reject(new Error(`the agent "${this.name}" has ended`));
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject });
      this.#child.stdin?.write(`${JSON.stringify({ id, op, args })}\n`);
    });
  }

  /** Serves under this agent's name. */
  serve(port: number, mode: TcpMode | UdpMode): Promise<number> {
    return isUdp(mode)
      ? this.call('listenUdp', { port, mode, name: this.name })
      : this.call('listenTcp', { port, mode, name: this.name });
  }

  stop(): void {
    this.#child.stdin?.end();
  }

  #receive(text: string): void {
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      const { id, result, error, code } = JSON.parse(line);
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      if (error === undefined) call?.resolve(result as never);
      else call?.reject(Object.assign(new Error(`${this.name}: ${error}`), { code }));
    }
  }
}

function isUdp(mode: TcpMode | UdpMode): mode is UdpMode {
  return mode.startsWith('udp-');
}
