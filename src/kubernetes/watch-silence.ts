import type { Clock } from '../util/clock.ts';
import { sleep } from '../util/wait.ts';
import type { Contact } from './api-client.ts';
import { ApiError } from './api-error.ts';

/** With the deadline of a probe, a dead server is noticed 35 s after its last byte; client-go takes up to 45 s. */
const SILENCE_MS = 25_000;

/**
 * Servers send a bookmark every minute, the first one after up to two (observed with 1.37). A watch without bookmarks
 * hangs in something between, such as a load balancer.
 */
const QUIET_MS = 150_000;

/** For a streamed list, which the server sends without a pause. It covers an object of 1.5 MiB at 256 kbit/s. */
const LIST_QUIET_MS = 60_000;

/** The server answers probes, but the watch has been silent for too long. */
export const QUIET = new ApiError('unreachable', 'a watch gave nothing more, although the server answers');

export interface OpenWatch {
  /** `Clock.now()` of the last whole line: a server that drips bytes counts as silent. */
  heardAt: number;
  /** The streamed list that is on its way; `undefined` while changes are. */
  readonly list: unknown;
}

interface Surroundings {
  readonly server: Contact;
  readonly clock: Clock;
  /** The server has shown that it is there. */
  readonly onAlive: () => void;
  readonly signal: AbortSignal;
}

/**
 * Resolves once a watch is dead: with the failure of a probe, or with {@link QUIET}; with `undefined` when aborted.
 *
 * A watch may be silent because nothing changes, so after some silence a probe asks the server something trivial on
 * another connection. That finds a stopped server and a dead network. A connection that only the network forgot is
 * found by the kernel (`agent-pool.ts`).
 */
export async function awaitSilence(
  watch: OpenWatch,
  { server, clock, onAlive, signal }: Surroundings,
): Promise<unknown> {
  let aliveAt = watch.heardAt;
  for (;;) {
    const quietMs = () => (watch.list !== undefined ? LIST_QUIET_MS : QUIET_MS);
    aliveAt = Math.max(aliveAt, watch.heardAt, server.lastContactAt ?? 0);
    await sleep(Math.min(aliveAt + SILENCE_MS, watch.heardAt + quietMs()) - clock.now(), clock, signal);
    if (signal.aborted) return undefined;
    if (clock.now() - watch.heardAt >= quietMs()) return QUIET;
    if (clock.now() - Math.max(watch.heardAt, server.lastContactAt ?? 0) >= SILENCE_MS) {
      try {
        await server.probe();
        aliveAt = clock.now();
      } catch (error) {
        return signal.aborted ? undefined : error;
      }
      if (signal.aborted) return undefined;
    }
    onAlive();
  }
}
