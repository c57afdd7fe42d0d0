import type { PeerState } from '../sys/socket.ts';

/*
 * When a peer counts as dead: for a whole timeout its kernel has said nothing, while something that was sent to it
 * waited. Not TCP_USER_TIMEOUT, for that ends connections to readers that pause, too: it counts the time for which a
 * window is closed, however faithfully the peer answers each probe of it (see ADR 21).
 */

/**
 * An answer or two may be lost, and the kernel sends them twice a second at most (`tcp_invalid_ratelimit`). The probes
 * of a window that has long been closed are two minutes apart, so here it is the time that says little.
 */
const MIN_UNANSWERED = 3;

/** Nothing waits for an answer. */
export const NEVER = Number.POSITIVE_INFINITY;

/** How often to look at a peer that has something to acknowledge: it counts as dead later than it should by one look. */
export function lookIntervalMs(timeoutMs: number): number {
  return Math.ceil(timeoutMs / 8);
}

/**
 * Since when it has left something unanswered, as far as is known. `sinceMs`: what the look before said, {@link NEVER} at
 * the first.
 */
export function unansweredSinceMs({ unanswered, silentMs }: PeerState, sinceMs: number, nowMs: number): number {
  return unanswered === 0 ? NEVER : Math.min(nowMs, Math.max(sinceMs, nowMs - silentMs));
}

export function isDead({ unanswered }: PeerState, unansweredMs: number, timeoutMs: number): boolean {
  return unanswered >= MIN_UNANSWERED && unansweredMs >= timeoutMs;
}
