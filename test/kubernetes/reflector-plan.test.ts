import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApiError, type ApiErrorCode } from '../../src/kubernetes/api-error.ts';
import {
  type Circumstances,
  type Course,
  type Exchange,
  nextStep,
  type Outcome,
  START,
  type Step,
} from '../../src/kubernetes/reflector-plan.ts';

const LISTING: Circumstances = { hasPlace: false, followedMs: 0, silentMs: 0, mayBeAbsent: false, random: () => 0 };
const WATCHING: Circumstances = { ...LISTING, hasPlace: true, followedMs: 60_000 };

function at(next: Exchange, course: Partial<Course> = {}): Course {
  return { ...START, next, ...course };
}

function status(code: number, retryAfterMs?: number): Outcome {
  return { kind: 'failed', error: new ApiError('status', `HTTP ${code}`, { status: code, retryAfterMs }) };
}

function event(code: number): Outcome {
  return { kind: 'failed', error: new ApiError('event', 'an ERROR event', { status: code }) };
}

function failure(code: ApiErrorCode): Outcome {
  return { kind: 'failed', error: new ApiError(code, code) };
}

function summary({ course, delayMs }: Step) {
  return { next: course.next, delayMs };
}

test('it begins with a streamed list', () => {
  assert.equal(START.next, 'stream');
});

test('a server that refuses streamed lists is asked for pages at once; the next list is a streamed one again', () => {
  for (const code of [400, 422]) {
    const step = nextStep(START, status(code), LISTING);
    assert.deepEqual(summary(step), { next: 'pages', delayMs: 0 });
    assert.equal(nextStep({ ...step.course, next: 'watch' }, failure('garbage'), WATCHING).course.next, 'stream');
  }
});

test('a streamed list that breaks off is replaced by pages; when they fail, it is tried again, ever more slowly', () => {
  let course = START;
  const steps = Array.from({ length: 4 }, () => {
    const step = nextStep(course, failure('incomplete'), LISTING);
    course = step.course;
    return summary(step);
  });
  assert.deepEqual(steps, [
    { next: 'pages', delayMs: 800 },
    { next: 'stream', delayMs: 1_600 },
    { next: 'pages', delayMs: 3_200 },
    { next: 'stream', delayMs: 6_400 },
  ]);
});

test('a server that cannot be reached keeps its streamed list', () => {
  assert.equal(nextStep(START, failure('unreachable'), LISTING).course.next, 'stream');
});

test('a list in pages is followed by a watch at once', () => {
  assert.deepEqual(summary(nextStep(at('pages'), { kind: 'listed' }, LISTING)), { next: 'watch', delayMs: 0 });
});

test('a watch that ends after a while goes on at once', () => {
  assert.deepEqual(summary(nextStep(at('watch'), { kind: 'ended' }, WATCHING)), { next: 'watch', delayMs: 0 });
});

test('watches that end as soon as they begin are tried ever more slowly', () => {
  const short = { ...WATCHING, followedMs: 50 };
  const first = nextStep(at('watch'), { kind: 'ended' }, short);
  const second = nextStep(first.course, { kind: 'ended' }, short);
  assert.deepEqual([first.delayMs, second.delayMs], [800, 1_600]);
});

const kept: readonly [string, Outcome][] = [
  ['a broken connection', failure('unreachable')],
  ['missing credentials', failure('credentials')],
  ['HTTP 401', status(401)],
  ['HTTP 403', status(403)],
  ['HTTP 429', status(429)],
  ['HTTP 500', status(500)],
  ['HTTP 503', status(503)],
  ['an ERROR event 429', event(429)],
];

for (const [what, outcome] of kept) {
  test(`after ${what} a watch goes on from where it was`, () => {
    assert.equal(nextStep(at('watch'), outcome, WATCHING).course.next, 'watch');
    assert.equal(nextStep(at('watch'), outcome, { ...WATCHING, followedMs: 0 }).course.next, 'watch');
  });
}

const lost: readonly [string, Outcome][] = [
  ['garbage', failure('garbage')],
  ['HTTP 410', status(410)],
  ['HTTP 400', status(400)],
  ['HTTP 404', status(404)],
  ['a redirect', status(302)],
  ['an ERROR event 410', event(410)],
  ['an ERROR event 500', event(500)],
];

for (const [what, outcome] of lost) {
  test(`after ${what} a watch is replaced by a new list`, () => {
    const { course, delayMs } = nextStep(at('watch'), outcome, WATCHING);
    assert.equal(course.next, 'stream');
    assert.ok(delayMs >= 800);
  });
}

test('after five minutes without the server a new list is due', () => {
  assert.equal(nextStep(at('watch'), failure('unreachable'), { ...WATCHING, silentMs: 299_999 }).course.next, 'watch');
  assert.equal(nextStep(at('watch'), failure('unreachable'), { ...WATCHING, silentMs: 300_000 }).course.next, 'stream');
});

test('the wait doubles from 0.8–1.6 s up to 15–30 s and stays there', () => {
  const delays = (random: () => number) => {
    let course = at('watch');
    return Array.from({ length: 50 }, () => {
      const step = nextStep(course, failure('unreachable'), { ...WATCHING, followedMs: 0, random });
      course = step.course;
      return Math.round(step.delayMs);
    });
  };
  const least = delays(() => 0);
  assert.deepEqual(least.slice(0, 6), [800, 1_600, 3_200, 6_400, 12_800, 15_000]);
  assert.equal(least.at(-1), 15_000);
  const most = delays(() => 1 - Number.EPSILON);
  assert.deepEqual([most[0], most.at(-1)], [1_600, 30_000]);
});

test('a watch that lasted starts the waits anew', () => {
  const { delayMs } = nextStep(at('watch', { misses: 9, refusals: 9 }), failure('unreachable'), WATCHING);
  assert.equal(delayMs, 800);
});

test('a list alone does not: a server whose watches fail must not be listed every second', () => {
  const { course } = nextStep(at('pages', { refusals: 5 }), { kind: 'listed' }, LISTING);
  assert.equal(course.refusals, 5);
});

test('a server that answers again after a long absence is asked again soon', () => {
  const { delayMs } = nextStep(at('watch', { misses: 9 }), status(410), { ...WATCHING, followedMs: 0 });
  assert.equal(delayMs, 800);
});

test('any answer ends a row of attempts without one', () => {
  const { course } = nextStep(at('watch', { misses: 9 }), status(500), { ...WATCHING, followedMs: 0 });
  assert.equal(nextStep(course, failure('unreachable'), { ...WATCHING, followedMs: 0 }).delayMs, 800);
});

test('Retry-After is honoured up to a minute, and spread', () => {
  assert.equal(nextStep(at('watch'), status(429, 7_000), WATCHING).delayMs, 7_000);
  assert.equal(nextStep(at('watch'), status(503, 7_000), { ...WATCHING, random: () => 0.8 }).delayMs, 8_400);
  assert.equal(nextStep(at('watch'), status(429, 86_400_000), WATCHING).delayMs, 60_000);
  assert.equal(nextStep(at('watch'), status(429, 1), WATCHING).delayMs, 800);
});

test('a missing resource that an old server may lack is looked for again in minutes; any other in seconds', () => {
  const absent = nextStep(START, status(404), { ...LISTING, mayBeAbsent: true });
  assert.ok(absent.absent && absent.delayMs >= 300_000);
  const failing = nextStep(START, status(404), LISTING);
  assert.ok(!failing.absent && failing.delayMs < 2_000);
});

test('a list that was suspiciously empty is asked for again after a short wait', () => {
  assert.deepEqual(summary(nextStep(START, { kind: 'unconfirmed' }, LISTING)), { next: 'stream', delayMs: 3_000 });
});
