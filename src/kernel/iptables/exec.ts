import type { Clock } from '../../util/clock.ts';
import { type ProgramRequest, type ProgramResult, runProgram } from '../../util/run-program.ts';
import { oneAtATime } from '../../util/wait.ts';

export type ExecRequest = ProgramRequest;

export type ExecResult = ProgramResult;

/** Runs one program to its end. Never rejects. */
export type Exec = (request: ExecRequest) => Promise<ExecResult>;

interface ExecOptions {
  readonly clock: Clock;
  /** The program is killed this long after its start. */
  readonly timeoutMs?: number;
}

/** Generous: a restore of 10,000 Services takes well under a second, so this ends only a program that hangs. */
export const DEFAULT_TIMEOUT_MS = 30_000;

/** Runs programs as children of this process. Each start blocks the event loop: see `exec-helper.ts`. */
export function createExec({ clock, timeoutMs = DEFAULT_TIMEOUT_MS }: ExecOptions): Exec {
  return inTurn((request) => runProgram(request, { clock, timeoutMs }));
}

/** One program at a time: parallel programs would wait for each other's lock, or see the rules change under them. */
export function inTurn(exec: Exec): Exec {
  // `undefined` comes only for an aborted signal, and none is passed.
  return oneAtATime(exec) as Exec;
}
