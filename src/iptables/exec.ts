import { spawn } from 'node:child_process';
import type { Clock } from '../contracts/clock.ts';

export interface ExecRequest {
  /** Looked up on PATH; no shell is involved. */
  readonly program: string;
  readonly args: readonly string[];
  /** For its standard input; bytes as latin1 characters. */
  readonly input?: string;
}

/** `stdout`: bytes as latin1 characters. `stderr`: its end. `code` is `null` when a signal ended the program. */
export type ExecResult =
  | { readonly outcome: 'exited'; readonly code: number | null; readonly stdout: string; readonly stderr: string }
  | { readonly outcome: 'missing' }
  | { readonly outcome: 'timeout'; readonly timeoutMs: number }
  | { readonly outcome: 'failed'; readonly err: string };

/** Runs one program to its end; never rejects. Requests and results are plain data, so it may live in another process. */
export type Exec = (request: ExecRequest) => Promise<ExecResult>;

export interface ExecOptions {
  readonly clock: Clock;
  /** After which the program is killed; counted from its start, not from the request. */
  readonly timeoutMs?: number;
}

/** Generous: a restore of 10,000 Services takes well under a second, so only what hangs is met by it. */
const DEFAULT_TIMEOUT_MS = 30_000;

/** The diagnosis comes last; what stands before it are warnings. */
const MAX_STDERR = 4096;

/** One program at a time: parallel ones would only wait for each other's lock, or find the rules changed beneath them. */
export function createExec({ clock, timeoutMs = DEFAULT_TIMEOUT_MS }: ExecOptions): Exec {
  let last: Promise<unknown> = Promise.resolve();
  return (request) => {
    const result = last
      .then(() => run(request, { clock, timeoutMs }))
      .catch((error): ExecResult => ({ outcome: 'failed', err: String(error) }));
    last = result;
    return result;
  };
}

function run({ program, args, input = '' }: ExecRequest, { clock, timeoutMs }: Required<ExecOptions>) {
  return new Promise<ExecResult>((resolve) => {
    const child = spawn(program, args, {
      // Messages are read, so they must not be translated.
      env: { ...process.env, LC_ALL: 'C' },
      // A process group of its own: the deadline reaches what a wrapper script started, and a ^C at our terminal does
      // not end a transaction half-way.
      detached: true,
    });
    child.on('error', (error: NodeJS.ErrnoException) =>
      resolve(error.code === 'ENOENT' ? { outcome: 'missing' } : { outcome: 'failed', err: error.message }),
    );
    // Not started, and the error event is on its way; out of descriptors there are not even the three streams.
    if (child.pid === undefined) return;
    const { pid } = child;

    const deadline = clock.after(timeoutMs, () => {
      // Without waiting for the end of it: a program that hangs inside the kernel does not even die of this.
      killGroup(pid);
      for (const stream of child.stdio) stream?.destroy();
      child.unref();
      resolve({ outcome: 'timeout', timeoutMs });
    });
    const stdout: Buffer[] = [];
    let stderr = '';
    // latin1 keeps every byte of other programs' comments as it is, whatever their encoding, in dumps and back again.
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.setEncoding('latin1').on('data', (chunk: string) => {
      stderr = (stderr + chunk).slice(-MAX_STDERR);
    });
    child.on('close', (code) => {
      deadline.cancel();
      resolve({ outcome: 'exited', code, stdout: Buffer.concat(stdout).toString('latin1'), stderr });
    });
    // A program that ends without having read everything says why by its exit code; the EPIPE adds nothing.
    child.stdin.on('error', () => {});
    child.stdin.end(input, 'latin1');
  });
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended in this very moment.
  }
}
