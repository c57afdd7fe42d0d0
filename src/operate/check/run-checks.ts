import type { Clock } from '../../util/clock.ts';
import { messageOf } from '../../util/text.ts';
import { withDeadline } from '../../util/wait.ts';
import { type Finding, fail } from './finding.ts';

export interface Check {
  /** Two or three words: what is looked at. */
  readonly name: string;
  readonly run: () => readonly Finding[] | Promise<readonly Finding[]>;
}

export interface NamedFinding extends Finding {
  readonly check: string;
}

/** Longer than everything together that a check waits for by itself: only one that hangs is met by it. */
export const CHECK_DEADLINE_MS = 30_000;

/** One check after the other, each with its findings as soon as they are there. One that throws or hangs has failed. */
export async function* runChecks(checks: Iterable<Check>, clock: Clock): AsyncGenerator<NamedFinding> {
  for (const { name, run } of checks) {
    for (const finding of await findingsOf(run, clock)) yield { check: name, ...finding };
  }
}

async function findingsOf(run: Check['run'], clock: Clock): Promise<readonly Finding[]> {
  const late = `no result within ${CHECK_DEADLINE_MS / 1_000} s`;
  try {
    // Also what is thrown before the first await.
    const work = (async () => run())();
    return await withDeadline(work, { clock, ms: CHECK_DEADLINE_MS, late });
  } catch (error) {
    return [fail(`this could not be looked at: ${messageOf(error)}`, 'see whether the others say why')];
  }
}
