import type { Clock } from '../../util/clock.ts';
import { runProgram } from './run-program.ts';

export interface ExecRequest {
  /** Looked up on PATH; no shell is involved. */
  readonly program: string;
  readonly args: readonly string[];
  /** For its standard input; bytes as latin1 characters. */
  readonly input?: string;
}

/**
 * How it ended. `stdout`: bytes as latin1 characters, unless `Output` says otherwise. `stderr`: its end, as latin1
 * characters. `code` is `null` when a signal ended the program.
 */
export type ExecResult<Output = string> =
  | { readonly outcome: 'exited'; readonly code: number | null; readonly stdout: Output; readonly stderr: string }
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
export const DEFAULT_TIMEOUT_MS = 30_000;

/** Runs programs as children of this process. Each start stops the event loop: see `exec-helper.ts`. */
export function createExec({ clock, timeoutMs = DEFAULT_TIMEOUT_MS }: ExecOptions): Exec {
  return inTurn(async ({ input = '', ...request }) => {
    const result = await runProgram({ ...request, input: Buffer.from(input, 'latin1') }, { clock, timeoutMs });
    if (result.outcome !== 'exited') return result;
    // latin1 keeps every byte of other programs' comments as it is, whatever their encoding, in dumps and back again.
    return { ...result, stdout: Buffer.concat(result.stdout).toString('latin1') };
  });
}

/** One program at a time: parallel ones would only wait for each other's lock, or find the rules changed beneath them. */
export function inTurn(exec: Exec): Exec {
  let last: Promise<unknown> = Promise.resolve();
  return (request) => {
    const result = last
      .then(() => exec(request))
      .catch((error): ExecResult => ({ outcome: 'failed', err: String(error) }));
    last = result;
    return result;
  };
}
