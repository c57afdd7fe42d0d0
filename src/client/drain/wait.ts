import { formatDuration } from '../../cli/duration.ts';
import type { Clock } from '../../contracts/clock.ts';
import { sleep } from '../../contracts/sleep.ts';
import type { ServiceFilter } from '../../contracts/view.ts';
import type { Control } from '../../control/protocol.ts';
import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { messageOf } from '../../model/message-of.ts';
import type { Terminal } from '../subcommand.ts';
import { type Holder, holdersOf } from './holders.ts';

const POLL_MS = 1_000;
/** While a successor takes over, nobody answers for a moment. */
const MAX_FAILURES = 10;
/** To look at every Service is less than to ask for so many of them one by one. */
const MANY_SERVICES = 50;
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
 * endpoint is drained no longer.
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
    const { open, isInEffect } = await left();
    const elapsedMs = clock.now() - startedAt;
    const remainingMs = timeoutMs === 0 ? Number.POSITIVE_INFINITY : timeoutMs - elapsedMs;
    progress.clear();
    if (open === 0 && isInEffect) {
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
    await sleep(Math.min(POLL_MS, remainingMs), clock, interrupted);
  }
}

interface Left {
  readonly open: number;
  /** Nothing gives the endpoint new connections any more. */
  readonly isInEffect: boolean;
}

/** Counts anew at each call. */
function connectionsLeft(control: Control, endpoint: Endpoint, holders: readonly Holder[]): () => Promise<Left> {
  const named = [...new Map(holders.map(({ filter }) => [`${filter.namespace}/${filter.service}`, filter])).values()];
  const filters = named.length > MANY_SERVICES ? [{}] : named;
  let last = holders;
  let wasDrained = false;
  let failures = 0;
  return async () => {
    try {
      last = await holdersOfAll(control, endpoint, filters);
      failures = 0;
    } catch (error) {
      failures++;
      if (failures > MAX_FAILURES) throw new Error(`cannot say whether connections are left: ${messageOf(error)}`);
    }
    const isActive = last.some((holder) => holder.isActive);
    if (isActive && wasDrained) {
      throw new Error('it is drained no longer: somebody gave it back, or the proxy was started anew');
    }
    wasDrained ||= !isActive;
    return { open: sum(last), isInEffect: !isActive };
  };
}

async function holdersOfAll(
  control: Control,
  endpoint: Endpoint,
  filters: readonly ServiceFilter[],
): Promise<Holder[]> {
  const holders: Holder[] = [];
  for (const filter of filters) holders.push(...(await holdersOf(control, endpoint, filter)));
  return holders;
}

function sum(holders: readonly Holder[]): number {
  let total = 0;
  for (const { connections } of holders) {
    if (connections === undefined)
      throw new Error(
        'the engine does not count the connections to an endpoint, so nobody can wait for them; it stays drained',
      );
    total += connections;
  }
  return total;
}

/** A line that is drawn again in its place; nothing where that is not possible. */
function lineOf({ isTTY, out }: Terminal): { show(text: string): void; clear(): void } {
  if (!isTTY) return { show: () => {}, clear: () => {} };
  return { show: out, clear: () => out('\r\u001b[K') };
}

export function connections(count: number): string {
  return count === 1 ? '1 connection' : `${count} connections`;
}
