import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { until } from '../support/until.ts';

/** Long enough for a busy machine. */
const HANGS_MS = 120_000;

const ROOT = join(import.meta.dirname, '../..');

/** Runs a program of this tree in a shell on its own terminal; ended after the test. */
export class PseudoTerminal {
  /** All that was written to the terminal. */
  written = '';
  readonly #script: ChildProcess;

  /** `program` is a path in the tree, with its arguments. */
  constructor(t: TestContext, program: string, { columns = 80, rows = 24 } = {}) {
    // The inner shell becomes the program, so it prints the program's id. The outer one must survive Ctrl-C: dash would
    // die of it, bash would not, and `script` takes whichever SHELL names.
    const command = `trap : INT; stty rows ${rows} cols ${columns}; sh -c 'echo "PID=$$."; exec "$NODE" ${program}'; echo "CODE=$?."; echo ENDED`;
    this.#script = spawn('script', ['-qec', command, '/dev/null'], {
      cwd: ROOT,
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, NODE: process.execPath, TERM: 'xterm', SHELL: '/bin/sh' },
    });
    this.#script.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.written += text;
    });
    t.after(() => this.#script.kill('SIGKILL'));
  }

  type(text: string): void {
    this.#script.stdin?.write(text);
  }

  /** Fails when the program ends without it. */
  async has(text: string, from = 0): Promise<void> {
    const isThere = () => this.written.includes(text, from);
    await until(`${JSON.stringify(text)} on the terminal`, () => isThere() || this.written.includes('ENDED'), HANGS_MS);
    assert.ok(
      isThere(),
      `no ${JSON.stringify(text)} on the terminal; there is ${JSON.stringify(this.written.slice(-3_000))}`,
    );
  }

  get pid(): number {
    return Number(/PID=(\d+)\./.exec(this.written)?.[1]);
  }

  setColumns(columns: number): void {
    const device = readlinkSync(`/proc/${this.pid}/fd/0`);
    execFileSync('stty', ['-F', device, 'cols', String(columns)]);
  }

  async code(): Promise<number> {
    await this.has('ENDED');
    return Number(/CODE=(\d+)\./.exec(this.written)?.[1]);
  }
}
