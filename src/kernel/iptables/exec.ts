import { spawn } from 'node:child_process';
import type { Clock } from '../../util/clock.ts';
import { messageOf } from '../../util/text.ts';
import { oneAtATime } from '../../util/wait.ts';

export interface ExecRequest {
  /** Looked up on PATH; no shell is involved. */
  readonly program: string;
  readonly args: readonly string[];
  /** Standard input. Each character is one byte (latin1), so that comments in any encoding survive dump and restore. */
  readonly input?: string;
  /** Instead of {@link ExecOptions.timeoutMs}. */
  readonly timeoutMs?: number;
}

/**
 * How the program ended. `stdout`: one character per byte. `stderr`: its last 4096 bytes. `code` is `null` when a
 * signal ended the program.
 */
export type ExecResult =
  | { readonly outcome: 'exited'; readonly code: number | null; readonly stdout: string; readonly stderr: string }
  | { readonly outcome: 'missing' }
  | { readonly outcome: 'timeout'; readonly timeoutMs: number }
  | { readonly outcome: 'failed'; readonly err: string };

/** Runs one program to its end. Never rejects. */
export type Exec = (request: ExecRequest) => Promise<ExecResult>;

export interface ExecOptions {
  readonly clock: Clock;
  /** The program is killed this long after its start. */
  readonly timeoutMs?: number;
}

/** Generous: a restore of 10,000 Services takes well under a second, so this ends only a program that hangs. */
export const DEFAULT_TIMEOUT_MS = 30_000;

/** The diagnosis comes last; before it stand warnings. */
const MAX_STDERR = 4096;

/** Runs programs as children of this process. Each start blocks the event loop: see `exec-helper.ts`. */
export function createExec({ clock, timeoutMs = DEFAULT_TIMEOUT_MS }: ExecOptions): Exec {
  return inTurn((request) => runProgram(request, { clock, timeoutMs: request.timeoutMs ?? timeoutMs }));
}

/** One program at a time: parallel programs would wait for each other's lock, or see the rules change under them. */
export function inTurn(exec: Exec): Exec {
  // `undefined` comes only for an aborted signal, and none is passed.
  return oneAtATime(exec) as Exec;
}

/** Runs one program to its end or its deadline. Never rejects. */
export function runProgram(
  { program, args, input = '' }: ExecRequest,
  { clock, timeoutMs }: Required<ExecOptions>,
): Promise<ExecResult> {
  return new Promise<ExecResult>((resolve) => {
    const child = spawn(program, args, {
      // The messages are parsed, so they must not be translated.
      env: { ...process.env, LC_ALL: 'C' },
      // A process group of its own: the deadline must also reach what a wrapper script started, and a ^C at our
      // terminal must not interrupt a transaction.
      detached: true,
    });
    child.on('error', (error: NodeJS.ErrnoException) =>
      resolve(error.code === 'ENOENT' ? { outcome: 'missing' } : { outcome: 'failed', err: error.message }),
    );
    // It could not be started, and the error event follows. Without free descriptors there are not even the streams.
    if (child.pid === undefined) return;
    const { pid } = child;

    const deadline = clock.after(timeoutMs, () => {
      // Does not wait for the exit: a program that hangs in the kernel survives even SIGKILL.
      killGroup(pid);
      for (const stream of child.stdio) stream?.destroy();
      child.unref();
      resolve({ outcome: 'timeout', timeoutMs });
    });
    const stdout: Buffer[] = [];
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.setEncoding('latin1').on('data', (chunk: string) => {
      stderr = (stderr + chunk).slice(-MAX_STDERR);
    });
    child.on('close', (code) => {
      deadline.cancel();
      resolve({ outcome: 'exited', code, stdout: Buffer.concat(stdout).toString('latin1'), stderr });
    });
    // A program that exits without reading everything reports why by its exit code; EPIPE adds nothing.
    child.stdin.on('error', () => {});
    child.stdin.end(input, 'latin1');
  }).catch((error: unknown) => ({ outcome: 'failed', err: messageOf(error) }));
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has just exited.
  }
}
