import type { Clock } from '../../util/clock.ts';
import { sleep } from '../../util/wait.ts';
import type { PageQuery } from './page-query.ts';
import type { Parts } from './parts.ts';

const PERIOD_MS = 2_000;

/** With thousands of Services, looking takes at most one part in so many of the time. */
const REST = 20;

/**
 * The parts of the page as server-sent events: at first and then every two seconds those that have changed, in one event
 * each time. The next is made when the client has taken the one before. Ends when the client has left.
 */
export async function* liveEvents(
  partsOf: (query: PageQuery, signal: AbortSignal) => Promise<{ readonly parts: Parts } | undefined>,
  query: PageQuery,
  clock: Clock,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const sent = new Map<string, string>();
  // A client that was cut off waits so long before it comes again.
  yield 'retry: 3000\n\n';
  while (!signal.aborted) {
    const beganMs = clock.now();
    const made = await partsOf(query, signal);
    if (made === undefined) return;
    const changed = takeChanged(made.parts, sent);
    // Also when nothing has changed: a client that has gone without a word is noticed by writing to it.
    yield `data: ${JSON.stringify(changed)}\n\n`;
    await sleep(Math.max(PERIOD_MS, REST * (clock.now() - beganMs)), clock, signal);
  }
}

function takeChanged(parts: Parts, sent: Map<string, string>): Readonly<Record<string, string>> {
  const changed = Object.entries(parts)
    .map(([id, { text }]) => [id, text] as const)
    .filter(([id, text]) => sent.get(id) !== text);
  for (const [id, text] of changed) sent.set(id, text);
  return Object.fromEntries(changed);
}
