import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Operations, Reply } from './programs/agent.ts';
import type { TcpMode, UdpMode } from './programs/servers.ts';
import type { Namespace } from './topology.ts';

type Argument<Op extends keyof Operations> = Parameters<Operations[Op]>[0];
type Result<Op extends keyof Operations> = Awaited<ReturnType<Operations[Op]>>;

/** This process's end of one `programs/agent.ts`: every operation there is a typed call here. */
export class Agent {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #calls = new Map<number, (reply: Omit<Reply, 'id'>) => void>();
  #nextId = 1;

  constructor(namespace: Pick<Namespace, 'spawn'>, name: string) {
    const program = fileURLToPath(new URL('programs/agent.ts', import.meta.url));
    this.name = name;
    this.#child = namespace.spawn([process.execPath, program], {}, ['ignore', 'inherit', 'inherit', 'ipc']);
    this.#child.on('message', ({ id, ...reply }: Reply) => this.#calls.get(id)?.(reply));
    this.#child.on('exit', () => {
      for (const settle of this.#calls.values()) settle({ error: 'the agent has ended' });
    });
  }

  call<Op extends keyof Operations>(op: Op, args: Argument<Op>): Promise<Result<Op>> {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const settle = ({ result, error, code }: Omit<Reply, 'id'>) => {
        this.#calls.delete(id);
        if (error === undefined) resolve(result as Result<Op>);
        else reject(Object.assign(new Error(`${this.name}: ${error}`), { code }));
      };
      this.#calls.set(id, settle);
      this.#child.send({ id, op, args }, (failure) => failure && settle({ error: failure.message }));
    });
  }

  /** Serves under this agent's name. */
  serve(port: number, mode: TcpMode | UdpMode): Promise<number> {
    return isUdp(mode)
      ? this.call('listenUdp', { port, mode, name: this.name })
      : this.call('listenTcp', { port, mode, name: this.name });
  }

  stop(): void {
    this.#child.disconnect();
  }
}

function isUdp(mode: TcpMode | UdpMode): mode is UdpMode {
  return mode.startsWith('udp-');
}
