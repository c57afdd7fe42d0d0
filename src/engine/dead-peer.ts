import type { PeerState } from '../sys/socket.ts';

/*
 * A peer counts as dead when its kernel has acknowledged nothing for a whole timeout, although bytes were sent to it.
 * TCP_USER_TIMEOUT would not do: it also ends connections to readers that pause, because it counts the time for which a
 * window is closed, even if the peer answers each probe of it (see ADR 21).
 */

/**
 * A few answers may be lost, and the peer's kernel sends at most two per second (`tcp_invalid_ratelimit`). The probes
 * of a window that has long been closed are two minutes apart, so time alone proves nothing.
 */
const MIN_UNANSWERED = 3;

/** Nothing is unacknowledged. */
export const NEVER = Number.POSITIVE_INFINITY;

/** How often to look at a peer that has something to acknowledge. Its death is found one interval late at most. */
export function lookIntervalMs(timeoutMs: number): number {
  return Math.ceil(timeoutMs / 8);
}

/**
 * Since when it has left something unanswered, as far as is known. `sinceMs`: the result of the look before, or
 * {@link NEVER}.
 */
export function unansweredSinceMs({ unanswered, silentMs }: PeerState, sinceMs: number, nowMs: number): number {
  return unanswered === 0 ? NEVER : Math.min(nowMs, Math.max(sinceMs, nowMs - silentMs));
}

export function isDead({ unanswered }: PeerState, unansweredMs: number, timeoutMs: number): boolean {
  return unanswered >= MIN_UNANSWERED && unansweredMs >= timeoutMs;
}
