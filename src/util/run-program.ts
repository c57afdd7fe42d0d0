import { spawn } from 'node:child_process';
import type { Clock } from './clock.ts';
import { messageOf } from './text.ts';

export interface ProgramRequest {
  /** Looked up on PATH; no shell is involved. */
  readonly program: string;
  readonly args: readonly string[];
  /** Standard input. Each character is one byte (latin1), so that comments in any encoding survive dump and restore. */
  readonly input?: string;
}

/**
 * How the program ended. `stdout`: one character per byte. `stderr`: its last 4096 bytes. `code` is `null` when a
 * signal ended the program.
 */
export type ProgramResult =
  | {
      readonly outcome: 'exited';
      readonly code: number | null;
      readonly signal?: NodeJS.Signals;
      readonly stdout: string;
      readonly stderr: string;
    }
  | { readonly outcome: 'missing' }
  | { readonly outcome: 'timeout'; readonly timeoutMs: number }
  | { readonly outcome: 'failed'; readonly err: string };

interface ProgramOptions {
  readonly clock: Clock;
  /** The program is killed this long after its start. */
  readonly timeoutMs: number;
  /** The program is killed when it prints more. */
  readonly maxOutputBytes?: number;
  readonly env?: NodeJS.ProcessEnv;
}

/** The diagnosis comes last; before it stand warnings. */
const MAX_STDERR = 4096;

/** Runs one program to its end or its deadline. Never rejects. */
export function runProgram(
  { program, args, input = '' }: ProgramRequest,
  // Messages are parsed, so by default they are not translated.
  {
    clock,
    timeoutMs,
    maxOutputBytes = Number.POSITIVE_INFINITY,
    env = { ...process.env, LC_ALL: 'C' },
  }: ProgramOptions,
): Promise<ProgramResult> {
  return new Promise<ProgramResult>((resolve) => {
    // A process group of its own: the deadline must also reach what a wrapper script started, and a ^C at our terminal
    // must not interrupt a transaction.
    const child = spawn(program, args, { env, detached: true });
    child.on('error', (error: NodeJS.ErrnoException) =>
      resolve(error.code === 'ENOENT' ? { outcome: 'missing' } : { outcome: 'failed', err: error.message }),
    );
    // It could not be started, and the error event follows. Without free descriptors there are not even the streams.
    if (child.pid === undefined) return;
    const { pid } = child;

    const giveUp = (result: ProgramResult) => {
      deadline.cancel();
      // Does not wait for the exit: a program that hangs in the kernel survives even SIGKILL.
      killGroup(pid);
      for (const stream of child.stdio) stream?.destroy();
      child.unref();
      resolve(result);
    };
    const deadline = clock.after(timeoutMs, () => giveUp({ outcome: 'timeout', timeoutMs }));
    const stdout: Buffer[] = [];
    let printed = 0;
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => {
      stdout.push(chunk);
      printed += chunk.length;
      if (printed > maxOutputBytes) giveUp({ outcome: 'failed', err: 'it prints too much' });
    });
    child.stderr.setEncoding('latin1').on('data', (chunk: string) => {
      stderr = (stderr + chunk).slice(-MAX_STDERR);
    });
    child.on('close', (code, signal) => {
      deadline.cancel();
      const output = { stdout: Buffer.concat(stdout).toString('latin1'), stderr };
      resolve({ outcome: 'exited', code, ...(signal !== null && { signal }), ...output });
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
    // It has just exited, or runs as another user, whose programs this process may not end.
  }
}
