import type { Clock } from '../../../util/clock.ts';
import { sleep } from '../../../util/wait.ts';
import { READ_TIMEOUT_MS } from '../../control/protocol.ts';
import type { Terminal } from '../command.ts';

/** In all: meanwhile the proxy waits, which it does not do for longer than its own timeout. */
export const PATIENCE_MS = READ_TIMEOUT_MS / 3;

/**
 * Each call waits until whoever reads has what was printed before, so that no more of a list is in memory than is
 * under way. But somebody who pages through it takes minutes: when {@link PATIENCE_MS} have been waited, the rest is
 * taken as it comes, for a list that ends in the middle is worse than one that takes memory.
 */
export function pace({ flush }: Pick<Terminal, 'flush'>, clock: Clock): () => Promise<void> {
  let leftMs = PATIENCE_MS;
  return async () => {
    if (leftMs <= 0) return;
    const startedAt = clock.now();
    const taken = new AbortController();
    await Promise.race([flush().then(() => taken.abort()), sleep(leftMs, clock, taken.signal)]);
    leftMs -= clock.now() - startedAt;
  };
}
