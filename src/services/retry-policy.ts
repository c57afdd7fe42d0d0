const LONGEST_DIAL_TIMEOUT_MS = 2000;

/** Upstream `pkg/proxy/userspace/proxysocket.go`, `EndpointDialTimeouts`. */
const DIAL_TIMEOUTS_MS = [250, 500, 1000, LONGEST_DIAL_TIMEOUT_MS] as const;

/** With fewer endpoints than this a pick goes round, as upstream, so that one that was only slow gets another chance. */
export const MIN_TRIES = DIAL_TIMEOUTS_MS.length;

/** How long a try of one connection may take. `attempt` counts from 0; the longest time holds for every further one. */
export function dialTimeoutMs(attempt: number): number {
  return DIAL_TIMEOUTS_MS[attempt] ?? LONGEST_DIAL_TIMEOUT_MS;
}

/**
 * No further endpoint is tried for a client that has waited for so long. Whether it still waits cannot be known: one that
 * has gone looks like one that has ended its direction early, and of hundreds of endpoints all may be dead.
 */
export const LONGEST_DIALLING_MS = 30_000;
