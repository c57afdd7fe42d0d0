import { spawn } from 'node:child_process';
import type { ExecOptions, ExecRequest, ExecResult } from './exec.ts';

/** The diagnosis comes last; what stands before it are warnings. */
const MAX_STDERR = 4096;

/** As an {@link ExecRequest}, but with bytes. */
export interface ProgramRequest extends Omit<ExecRequest, 'input'> {
  readonly input: Buffer;
}

/** With standard output in the pieces in which it came. */
export type ProgramResult = ExecResult<readonly Buffer[]>;

/** One program, to its end or its deadline. Rejects only when the process cannot be asked for at all. */
export function runProgram(
  { program, args, input }: ProgramRequest,
  { clock, timeoutMs }: Required<ExecOptions>,
): Promise<ProgramResult> {
  return new Promise((resolve) => {
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
    child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr.setEncoding('latin1').on('data', (chunk: string) => {
      stderr = (stderr + chunk).slice(-MAX_STDERR);
    });
    child.on('close', (code) => {
      deadline.cancel();
      resolve({ outcome: 'exited', code, stdout, stderr });
    });
    // A program that ends without having read everything says why by its exit code; the EPIPE adds nothing.
    child.stdin.on('error', () => {});
    child.stdin.end(input);
  });
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended in this very moment.
  }
}
