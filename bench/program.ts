import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { type Namespace, runCommand } from '../test/netns/topology.ts';
import { waitFor } from '../test/netns/wait.ts';

const KEPT_BYTES = 4_000;
const STOP_MS = 15_000;

/** A program that runs beside the measurements, and the end of what it has said. */
export class Program {
  readonly name: string;
  readonly #child: ChildProcess;
  #said = '';

  constructor(namespace: Namespace, argv: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.name = argv[0]!.split('/').at(-1)!;
    this.#child = namespace.spawn(argv, env);
    this.#child.on('error', (error) => this.#hear(`${error.message}\n`));
    for (const stream of [this.#child.stdout!, this.#child.stderr!]) {
      stream.setEncoding('utf8').on('data', (text: string) => this.#hear(text));
    }
  }

  get pid(): number {
    return this.#child.pid!;
  }

  get running(): boolean {
    return this.#child.pid !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** For the message of a failure. */
  get said(): string {
    return this.#said.trim();
  }

  /** Waits for a condition that needs this program alive. */
  async until(what: string, condition: () => Promise<boolean>): Promise<void> {
    const isSo = async () => {
      if (!this.running) throw new Error(`${this.name} has ended: ${this.said}`);
      return await condition();
    };
    await waitFor(`${this.name} ${what}`, isSo).catch((error: Error) => {
      throw new Error(`${error.message}; ${this.name} said: ${this.said || 'nothing'}`);
    });
  }

  async stop(): Promise<void> {
    if (this.running) this.#child.kill('SIGTERM');
    await waitFor(`${this.name} ends`, () => !this.running, STOP_MS).catch(() => this.#child.kill('SIGKILL'));
  }

  #hear(text: string): void {
    this.#said = (this.#said + text).slice(-KEPT_BYTES);
  }
}

/** Which of these ports have a TCP listener or a UDP socket here. */
export async function listening(namespace: Namespace, ports: readonly number[]): Promise<boolean> {
  const text = await namespace.output(['ss', '-Hltnu']);
  const bound = new Set(text.split('\n').map((line) => Number(line.split(/\s+/)[4]?.split(':').at(-1))));
  return ports.every((port) => bound.has(port));
}

/** How many connections this port has. */
export async function established(namespace: Namespace, port: number): Promise<number> {
  const text = await namespace.output(['ss', '-Htn', 'state', 'established', `sport = :${port}`]);
  return text.split('\n').filter(Boolean).length;
}

/** Seconds of processor time of everything that runs in this namespace now, all threads and both modes. */
export async function cpuSeconds(namespace: Namespace): Promise<number> {
  const { stdout } = await runCommand(['ip', 'netns', 'pids', namespace.name]);
  let ticks = 0;
  for (const pid of stdout.split('\n').filter(Boolean)) ticks += ticksOf(pid);
  return ticks / TICKS_PER_SECOND;
}

/** USER_HZ: the same on every architecture that we run on. */
const TICKS_PER_SECOND = 100;

function ticksOf(pid: string): number {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return 0; // It has ended meanwhile.
  }
  // The name in parentheses may hold spaces; utime and stime are the 12th and 13th field after it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}
