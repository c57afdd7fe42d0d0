import type { Random } from '../util/clock.ts';
import { backoffMs } from '../util/wait.ts';
import type { ApiError } from './api-error.ts';

/**
 * The next request. `stream`: a list that comes as a watch and continues as one. `pages`: a list in compressed pieces.
 * `watch`: the changes since the last known version.
 */
export type Exchange = 'stream' | 'pages' | 'watch';

export interface Course {
  readonly next: Exchange;
  /** Failed attempts in a row without an answer. */
  readonly misses: number;
  /**
   * Failed attempts in a row with an answer. Counted apart: a server that was away for long is asked again soon once it
   * answers, even if its first answer is that our version is too old.
   */
  readonly refusals: number;
}

export const START: Course = { next: 'stream', misses: 0, refusals: 0 };

export type Outcome =
  /** A list in pages was taken over. */
  | { readonly kind: 'listed' }
  /**
   * A watch was closed in an orderly way, or dropped because it was silent. `error`: its connection broke. The server
   * has gone, or something in between ends watches in this way.
   */
  | { readonly kind: 'ended'; readonly error?: ApiError }
  /** A list was suspiciously empty. */
  | { readonly kind: 'unconfirmed' }
  | { readonly kind: 'failed'; readonly error: ApiError };

export interface Circumstances {
  /** Whether there is a version to continue from: it was a watch, or a list that had become complete. */
  readonly hasPlace: boolean;
  /** For how long changes had been arriving. */
  readonly followedMs: number;
  /** Whether any did. A server that repeats what is known, and ends the watch, gets no rest otherwise. */
  readonly hasChanged: boolean;
  /** Since the last sign of the server for this resource. */
  readonly silentMs: number;
  /** Statuses by which a server says that it does not have this resource; none where it has listed it. */
  readonly absentAt: readonly number[];
  readonly random: Random;
}

export interface Step {
  readonly course: Course;
  readonly delayMs: number;
  /** The server does not have this resource. */
  readonly absent: boolean;
}

/**
 * A watch that lasted this long, or gave a change, is followed by the next at once, as in client-go, which calls others
 * a "very short watch". A load balancer may end watches after seconds.
 */
export const SHORT_WATCH_MS = 1_000;

/** A watch that lasted this long ends a row of failures, even if it ends with one. */
const LASTING_MS = 10_000;

/** client-go's reflector: the first retry after 0.8–1.6 s, and never more than 30 s between two. */
const BACKOFF_FIRST_MS = 1_600;
const BACKOFF_MAX_MS = 30_000;

/** The longest wait that a server may ask for (Retry-After), so that the state does not get old. */
const RETRY_AFTER_MAX_MS = 60_000;

/** Long enough for a starting server to fill its caches. */
const CONFIRM_MS = 3_000;

/** When to ask an old server again for a resource that it does not have. Replacing a server takes minutes. */
const ABSENT_MS = 300_000;

/**
 * After this silence a new list is due, although the version may still work: etcd forgets versions after five minutes,
 * and an etcd that was restored from a backup counts on from an older version, so a watch could miss changes without an
 * error.
 */
const PLACE_LOST_MS = 300_000;

/** What to do after an exchange, and when. Pure except for the draw. */
export function nextStep(course: Course, outcome: Outcome, circumstances: Circumstances): Step {
  const { followedMs, hasChanged, random } = circumstances;
  switch (outcome.kind) {
    case 'listed':
      return { course: { ...course, next: 'watch' }, delayMs: 0, absent: false };
    case 'ended':
      if (hasChanged || followedMs >= SHORT_WATCH_MS) {
        return { course: { next: 'watch', misses: 0, refusals: 0 }, delayMs: 0, absent: false };
      }
      if (outcome.error === undefined) return refused({ ...course, next: 'watch' }, random);
      return afterFailure(course, outcome.error, circumstances);
    case 'unconfirmed':
      return { course: { ...course, next: 'stream' }, delayMs: spread(CONFIRM_MS, random), absent: false };
    case 'failed': {
      const from = followedMs >= LASTING_MS ? { ...course, misses: 0, refusals: 0 } : course;
      return afterFailure(from, outcome.error, circumstances);
    }
  }
}

function afterFailure(from: Course, error: ApiError, { hasPlace, silentMs, absentAt, random }: Circumstances): Step {
  const retry = (next: Exchange): Step =>
    isAnswer(error)
      ? refused({ ...from, next }, random, patienceMs(error, random))
      : { course: { ...from, next, misses: from.misses + 1 }, delayMs: waitMs(from.misses, random), absent: false };

  if (error.status !== undefined && absentAt.includes(error.status)) {
    return { course: START, delayMs: spread(ABSENT_MS, random), absent: true };
  }
  if (hasPlace) return retry(isTransient(error) && silentMs < PLACE_LOST_MS ? 'watch' : 'stream');
  if (from.next === 'stream') {
    // The server does not know streamed lists. Each list asks again, as in client-go: the server may be replaced.
    if (error.status === 400 || error.status === 422) {
      return { course: { ...from, next: 'pages' }, delayMs: 0, absent: false };
    }
    // Pages are compressed, so a slow link carries them sooner. And servers give up a stream that is read slowly.
    if (error.code === 'incomplete') return retry('pages');
  }
  return retry('stream');
}

/** The server answered; the next attempt is later. */
function refused(course: Course, random: Random, atLeastMs = 0): Step {
  const delayMs = Math.max(atLeastMs, waitMs(course.refusals, random));
  return { course: { ...course, misses: 0, refusals: course.refusals + 1 }, delayMs, absent: false };
}

function isAnswer({ code }: ApiError): boolean {
  return code !== 'unreachable' && code !== 'credentials';
}

/** Whether the server still has the changes since the last version: none are lost, only delayed. */
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

/** Doubles, with a random part of a half, so that nodes that lost the same server do not return in step. */
function waitMs(failures: number, random: Random): number {
  return backoffMs(failures + 1, { firstMs: BACKOFF_FIRST_MS, maxMs: BACKOFF_MAX_MS }) * (0.5 + 0.5 * random());
}

function patienceMs({ retryAfterMs = 0 }: ApiError, random: Random): number {
  return retryAfterMs > 0 ? spread(Math.min(retryAfterMs, RETRY_AFTER_MAX_MS), random) : 0;
}

/** From `ms` up to a quarter more. */
function spread(ms: number, random: Random): number {
  return ms * (1 + 0.25 * random());
}
