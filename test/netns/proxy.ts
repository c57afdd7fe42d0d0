import { type ChildProcess, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { listIfThere, readIfThere } from '../../src/kernel/files.ts';
import type { Namespace } from './topology.ts';
import { waitFor } from './wait.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** What a user starts. */
export const PROGRAM = `${ROOT}dist/kube-userspace-proxy`;

/** One line of the JSON log; `msg` alone for a line that is not JSON. */
export interface LogLine {
  readonly level?: string;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A running kube-userspace-proxy, as it was started from the command line. */
export class ProxyProcess {
  readonly #child: ChildProcess;
  readonly log: LogLine[] = [];
  readonly controlSocket = nextControlSocket();
  #end: ProcessEnd | undefined;

  /** `through`: a command that becomes the program, such as `setpriv`; `program`: instead of these sources' program. */
  constructor(
    namespace: Namespace,
    args: readonly string[],
    {
      env = {},
      through = [],
      program,
    }: { env?: NodeJS.ProcessEnv; through?: readonly string[]; program?: string } = {},
  ) {
    if (program === undefined) buildOnce();
    this.#child = namespace.spawn(
      [...through, program ?? PROGRAM, ...args, `--control-socket=${this.controlSocket}`],
      env,
    );
    for (const stream of [this.#child.stdout!, this.#child.stderr!]) {
      createInterface({ input: stream }).on('line', (line) => this.log.push(parseLine(line)));
    }
    this.#child.on('close', (code, signal) => {
      this.#end = { code, signal };
    });
  }

  get pid(): number {
    return this.#child.pid!;
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves when it has ended, and its log is complete; a proxy that does not end is killed and fails the test. */
  async exited(): Promise<ProcessEnd> {
    try {
      return await waitFor('the proxy ends', () => this.#end);
    } catch (error) {
      const threads = this.running ? this.waitsIn().join(', ') : 'it has, and another process has its output open';
      this.#child.kill('SIGKILL');
      throw new Error(`${(error as Error).message}: ${threads}\n${this.tail()}`);
    }
  }

  /** Resolves with the exit code after SIGTERM. */
  async stop(): Promise<number | null> {
    if (this.running) this.#child.kill('SIGTERM');
    return (await this.exited()).code;
  }

  /** Where in the kernel each of its threads waits: "node: ep_poll". */
  waitsIn(): readonly string[] {
    const tasks = `/proc/${this.pid}/task`;
    // A thread may end meanwhile.
    const of = (thread: string, what: string) => readIfThere(`${tasks}/${thread}/${what}`)?.trim() ?? '';
    return listIfThere(tasks).map((thread) => `${of(thread, 'comm')}: ${of(thread, 'wchan')}`);
  }

  /** Lines with these fields. */
  lines(fields: Readonly<Record<string, unknown>>): LogLine[] {
    return this.log.filter((line) => Object.entries(fields).every(([key, value]) => line[key] === value));
  }

  /** The last lines, for the message of a failure. */
  tail(): string {
    return this.log
      .slice(-20)
      .map((line) => JSON.stringify(line))
      .join('\n');
  }
}

function parseLine(line: string): LogLine {
  try {
    return JSON.parse(line) as LogLine;
  } catch {
    return { msg: line };
  }
}

let sockets: { readonly folder: string; used: number } | undefined;

/** Namespaces share the file system, where each proxy needs a place of its own. */
function nextControlSocket(): string {
  if (sockets === undefined) {
    const folder = mkdtempSync(join(tmpdir(), 'proxies-'));
    process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
    sockets = { folder, used: 0 };
  }
  return join(sockets.folder, `${++sockets.used}.sock`);
}

let built = false;

/** Also when there is one: it may be of older sources. */
export function buildOnce(): void {
  if (built) return;
  const { status, stderr } = spawnSync('scripts/build', { cwd: ROOT, encoding: 'utf8', timeout: 300_000 });
  if (status !== 0) throw new Error(`cannot build ${PROGRAM}: ${stderr}`);
  built = true;
}
