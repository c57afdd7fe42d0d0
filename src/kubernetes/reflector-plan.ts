import type { Random } from '../util/clock.ts';
import type { ApiError } from './api-error.ts';

/**
 * What to ask the server for next. `stream`: a list that comes as a watch and goes on as one. `pages`: a list in
 * pieces, compressed; `whole`: in one piece, after pages turned out to be too slow for the server's memory of them. `watch`: the
 * changes since the last known version.
 */
export type Exchange = 'stream' | 'pages' | 'whole' | 'watch';

/** Where a reflector stands. */
export interface Course {
  readonly next: Exchange;
  /** Attempts in a row that the server did not answer. */
  readonly misses: number;
  /**
   * Attempts in a row that it answered, and not well. Counted apart: a server that was away for long is asked again
   * soon once it answers at all, even if its first answer is that our version is too old.
   */
  readonly refusals: number;
}

export const START: Course = { next: 'stream', misses: 0, refusals: 0 };

/** How an exchange came to its end. */
export type Outcome =
  /** A list in pages was taken over. */
  | { readonly kind: 'listed' }
  /** The server closed a watch in an orderly way, or it was given up for its silence alone. */
  | { readonly kind: 'ended' }
  /** A list was suspiciously empty. */
  | { readonly kind: 'unconfirmed' }
  | { readonly kind: 'failed'; readonly error: ApiError };

export interface Circumstances {
  /** Whether there is a version to go on from: it was a watch, or a list that had become complete. */
  readonly hasPlace: boolean;
  /** For how long changes had been arriving. */
  readonly followedMs: number;
  /** Since the server was last heard on this resource's behalf. */
  readonly silentMs: number;
  /** The server never listed this resource and does not need to have it. */
  readonly mayBeAbsent: boolean;
  readonly random: Random;
}

export interface Step {
  readonly course: Course;
  readonly delayMs: number;
  /** The server does not have this resource. */
  readonly absent: boolean;
}

/** A watch that held this long was a good one: what ends it is not part of a row of failures. */
const LASTING_MS = 10_000;

/** client-go's reflector: the first retry after 0.8–1.6 s, and never more than 30 s between two. */
const BACKOFF_FIRST_MS = 1_600;
const BACKOFF_MAX_MS = 30_000;

/** A server may ask for patience, but not for so much that the state gets old. */
const RETRY_AFTER_MAX_MS = 60_000;

/** Long enough for a server that is just starting to have filled its caches. */
const CONFIRM_MS = 3_000;

/** When to look again for what an old server did not have. It has to be replaced meanwhile, which takes minutes. */
const ABSENT_MS = 300_000;

/**
 * After so much silence a new list is due, although the version might still do: etcd forgets versions after five
 * minutes, and one that was restored from a backup counts on from an older one, so that a watch would miss changes
 * without an error.
 */
const PLACE_LOST_MS = 300_000;

/** What to do after an exchange, and when. Pure but for the draw. */
export function nextStep(course: Course, outcome: Outcome, circumstances: Circumstances): Step {
  const { followedMs, random } = circumstances;
  const hasLasted = followedMs >= LASTING_MS;
  const from: Course = hasLasted ? { ...course, misses: 0, refusals: 0 } : course;
  switch (outcome.kind) {
    case 'listed':
      return { course: { ...from, next: 'watch' }, delayMs: 0, absent: false };
    case 'ended':
      return hasLasted
        ? { course: { ...from, next: 'watch' }, delayMs: 0, absent: false }
        : refused({ ...from, next: 'watch' }, random);
    case 'unconfirmed':
      return { course: { ...from, next: 'stream' }, delayMs: spread(CONFIRM_MS, random), absent: false };
    case 'failed':
      return afterFailure(from, outcome.error, circumstances);
  }
}

function afterFailure(from: Course, error: ApiError, { hasPlace, silentMs, mayBeAbsent, random }: Circumstances): Step {
  const retry = (next: Exchange): Step =>
    isAnswer(error)
      ? refused({ ...from, next }, random, patienceMs(error, random))
      : { course: { ...from, next, misses: from.misses + 1 }, delayMs: backoffMs(from.misses, random), absent: false };

  if (error.status === 404 && mayBeAbsent) {
    return { course: START, delayMs: spread(ABSENT_MS, random), absent: true };
  }
  if (hasPlace) return retry(isTransient(error) && silentMs < PLACE_LOST_MS ? 'watch' : 'stream');
  const atOnce = (next: Exchange): Step => ({ course: { ...from, next }, delayMs: 0, absent: false });
  if (from.next === 'stream') {
    // The server does not know streamed lists. It is asked again each time, as client-go does: it may have been replaced.
    if (error.status === 400 || error.status === 422) return atOnce('pages');
    // Over a slow link, pages are far less: they come compressed. And a server gives up a stream that is read slowly.
    if (error.code === 'incomplete') return retry('pages');
  }
  if (from.next === 'pages' && error.status === 410) return atOnce('whole');
  return retry('stream');
}

/** The server answered, and will be asked again later. */
function refused(course: Course, random: Random, atLeastMs = 0): Step {
  const delayMs = Math.max(atLeastMs, backoffMs(course.refusals, random));
  return { course: { ...course, misses: 0, refusals: course.refusals + 1 }, delayMs, absent: false };
}

function isAnswer({ code }: ApiError): boolean {
  return code !== 'unreachable' && code !== 'credentials';
}

/** Whether the changes since the last version can still be had after this: nothing was lost, only held up. */
function isTransient({ code, status = 0 }: ApiError): boolean {
  switch (code) {
    case 'credentials':
    case 'unreachable':
    case 'incomplete':
      return true;
    case 'status':
      return status === 401 || status === 403 || status === 429 || status >= 500;
    case 'event':
      return status === 429;
    case 'garbage':
      return false;
  }
}

/** Doubling, and spread over half of it, so that nodes which lost the same server do not return in step. */
function backoffMs(failures: number, random: Random): number {
  const ceilingMs = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(failures, 16));
  return ceilingMs * (0.5 + 0.5 * random());
}

function patienceMs({ retryAfterMs = 0 }: ApiError, random: Random): number {
  return retryAfterMs > 0 ? spread(Math.min(retryAfterMs, RETRY_AFTER_MAX_MS), random) : 0;
}

/** From `ms` up to a quarter more. */
function spread(ms: number, random: Random): number {
  return ms * (1 + 0.25 * random());
}
