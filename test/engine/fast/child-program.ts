import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

/** One of `programs/`, in a process of its own that goes with the test. It sends its port, and its state when asked. */
export class ChildProgram<State> {
  readonly port: number;
  readonly pid: number;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, port: number) {
    this.#child = child;
    this.pid = child.pid ?? 0;
    this.port = port;
  }

  static async start<State>(
    t: TestContext,
    program: string,
    { args, wrapper = [], nodeArgs = [] }: StartOptions,
  ): Promise<ChildProgram<State>> {
    const file = join(import.meta.dirname, 'programs', program);
    const [command = '', ...rest] = [...wrapper, process.execPath, ...nodeArgs, file, ...args.map(String)];
    const child = spawn(command, rest, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    // The program ends when the channel closes; a wrapper that is killed might leave it behind.
    t.after(() => child.disconnect());
    const [{ port }] = await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(() => Promise.reject(new Error(`${command} ended at once`))),
    ]);
    return new ChildProgram(child, port);
  }

  async state(): Promise<State> {
    const answered = once(this.#child, 'message');
    this.#child.send({});
    const [state] = await answered;
    return state;
  }
}

export interface StartOptions {
  readonly args: readonly (string | number)[];
  /** A command that runs the program, for instance with a limit. */
  readonly wrapper?: readonly string[];
  readonly nodeArgs?: readonly string[];
}
