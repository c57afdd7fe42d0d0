import { formatDuration } from '../../../config/duration.ts';
import { type Endpoint, endpointName } from '../../../model/endpoint.ts';
import type { Clock } from '../../../util/clock.ts';
import { sleep } from '../../../util/wait.ts';
import type { Control } from '../../control/protocol.ts';
import type { Terminal } from '../command.ts';
import { connectionsLeft } from './connections-left.ts';
import type { Holder } from './holders.ts';

const POLL_MS = 1_000;
/** Where all connections of the node have to be looked through. */
const LIST_POLL_MS = 5_000;
/** As a shell counts a process that SIGINT has ended. */
const INTERRUPTED = 130;

export interface Wait {
  readonly control: Control;
  readonly endpoint: Endpoint;
  readonly holders: readonly Holder[];
  /** 0: without a bound. */
  readonly timeoutMs: number;
  readonly terminal: Terminal;
  readonly clock: Clock;
  /** The operator has had enough. */
  readonly interrupted: AbortSignal;
}

/**
 * Until a drained endpoint has no connection any more. Resolves with the exit code; rejects with a sentence when the
 * endpoint is drained no longer, or nobody can tell.
 */
export async function waitForConnections({
  control,
  endpoint,
  holders,
  timeoutMs,
  terminal,
  clock,
  interrupted,
}: Wait): Promise<number> {
  const name = endpointName(endpoint);
  const left = connectionsLeft(control, endpoint, holders);
  const startedAt = clock.now();
  const progress = lineOf(terminal);
  for (;;) {
    const { open, isInEffect, isListed, gone } = await left();
    const elapsedMs = clock.now() - startedAt;
    const remainingMs = timeoutMs === 0 ? Number.POSITIVE_INFINITY : timeoutMs - elapsedMs;
    progress.clear();
    if (open === 0 && isInEffect) {
      if (gone.length > 0) throw new Error(`${untold(gone)}; ${name} stays drained`);
      terminal.out(`All connections to ${name} have ended.\n`);
      return 0;
    }
    if (interrupted.aborted || remainingMs <= 0) {
      const why = open === 0 ? 'Not all Services have given it up yet' : `${connections(open)} to ${name} still open`;
      terminal.err(`${why}; it stays drained, until undrain.\n`);
      return interrupted.aborted ? INTERRUPTED : 1;
    }
    progress.show(
      `Waiting for ${connections(open)} to end, ${formatDuration(Math.round(elapsedMs / 1_000) * 1_000)} so far`,
    );
    await sleep(Math.min(isListed ? LIST_POLL_MS : POLL_MS, remainingMs), clock, interrupted);
  }
}

/** The first stands for all. */
function untold([first = '', ...others]: readonly string[]): string {
  const had = `${first}${others.length > 0 ? ` and ${others.length} others` : ''} had some`;
  return `cannot say whether connections are left: ${had}, and nobody counts those of a Service that is served no longer`;
}

/** A line that is drawn again in its place; nothing where that is not possible. */
function lineOf({ isTTY, out }: Terminal): { show(text: string): void; clear(): void } {
  if (!isTTY) return { show: () => {}, clear: () => {} };
  return { show: out, clear: () => out('\r\u001b[K') };
}

export function connections(count: number): string {
  return count === 1 ? '1 connection' : `${count} connections`;
}
