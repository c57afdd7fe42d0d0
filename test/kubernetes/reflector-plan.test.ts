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

const LISTING: Circumstances = {
  ...{ hasPlace: false, followedMs: 0, hasChanged: false, silentMs: 0, absentAt: [] },
  random: () => 0,
};
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

test('a server that refuses streamed lists is asked for pages at once; the next list is streamed again', () => {
  assert.equal(START.next, 'stream');
  for (const code of [400, 422]) {
    const step = nextStep(START, status(code), LISTING);
    assert.deepEqual(summary(step), { next: 'pages', delayMs: 0 });
    assert.equal(nextStep({ ...step.course, next: 'watch' }, failure('garbage'), WATCHING).course.next, 'stream');
  }
});

test('a streamed list that breaks off is replaced by pages, and these by a stream when they fail, ever more slowly', () => {
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

const SHORT: Circumstances = { ...WATCHING, followedMs: 0 };
const SECOND: Circumstances = { ...WATCHING, followedMs: 1_000 };
const broken: Outcome = { kind: 'ended', error: new ApiError('unreachable', 'read ECONNRESET') };
const LONG_TROUBLE = { misses: 9, refusals: 9 };

// biome-ignore format: a table
const steps: readonly [string, Course, Outcome, Circumstances, Exchange, number][] = [
  ['an unreachable server is asked for a streamed list again', START, failure('unreachable'), LISTING, 'stream', 800],
  ['after a list in pages comes a watch', at('pages'), { kind: 'listed' }, LISTING, 'watch', 0],
  ['a watch that ends after a while goes on at once', at('watch'), { kind: 'ended' }, WATCHING, 'watch', 0],
  ['a watch that ends after a second, too', at('watch', LONG_TROUBLE), { kind: 'ended' }, SECOND, 'watch', 0],
  ['a watch that breaks after a second, too', at('watch', LONG_TROUBLE), broken, SECOND, 'watch', 0],
  ['a watch that ends after a change, too', at('watch'), { kind: 'ended' }, { ...SHORT, hasChanged: true }, 'watch', 0],
  ['a watch that breaks at once waits', at('watch', { misses: 1 }), broken, SHORT, 'watch', 1_600],
  ['a watch of a second that fails does not end a row', at('watch', { refusals: 3 }), failure('garbage'), SECOND, 'stream', 6_400],
  ['a watch that ends at once waits', at('watch'), { kind: 'ended' }, SHORT, 'watch', 800],
  ['a second such watch waits longer', at('watch', { refusals: 1 }), { kind: 'ended' }, SHORT, 'watch', 1_600],
  ['a doubted empty list is asked for again soon', START, { kind: 'unconfirmed' }, LISTING, 'stream', 3_000],
  ['a long watch ends a row of failures', at('watch', LONG_TROUBLE), failure('unreachable'), WATCHING, 'watch', 800],
  ['the first answer after an absence is followed up soon', at('watch', { misses: 9 }), status(410), SHORT, 'stream', 800],
  ['Retry-After is honoured', at('watch'), status(429, 7_000), WATCHING, 'watch', 7_000],
  ['Retry-After is spread', at('watch'), status(503, 7_000), { ...WATCHING, random: () => 0.8 }, 'watch', 8_400],
  ['Retry-After counts up to a minute', at('watch'), status(429, 86_400_000), WATCHING, 'watch', 60_000],
  ['a short Retry-After does not shorten the wait', at('watch'), status(429, 1), WATCHING, 'watch', 800],
  ['the version is kept for five minutes', at('watch'), failure('unreachable'), { ...WATCHING, silentMs: 299_999 }, 'watch', 800],
  ['the version is given up after that', at('watch'), failure('unreachable'), { ...WATCHING, silentMs: 300_000 }, 'stream', 800],
];

for (const [title, from, outcome, circumstances, next, delayMs] of steps) {
  test(title, () => assert.deepEqual(summary(nextStep(from, outcome, circumstances)), { next, delayMs }));
}

const afterTrouble: readonly [Exchange, Record<string, Outcome>][] = [
  [
    'watch',
    {
      ...{ unreachable: failure('unreachable'), credentials: failure('credentials'), 'event 429': event(429) },
      ...Object.fromEntries([401, 403, 429, 500, 503].map((code) => [`HTTP ${code}`, status(code)])),
    },
  ],
  [
    'stream',
    {
      ...{ garbage: failure('garbage'), 'event 410': event(410), 'event 500': event(500) },
      ...Object.fromEntries([302, 400, 404, 410].map((code) => [`HTTP ${code}`, status(code)])),
    },
  ],
];

for (const [next, outcomes] of afterTrouble) {
  test(`what a watch is followed by: ${next} after ${Object.keys(outcomes).join(', ')}`, () => {
    for (const [what, outcome] of Object.entries(outcomes)) {
      for (const circumstances of [WATCHING, SHORT]) {
        const step = nextStep(at('watch'), outcome, circumstances);
        assert.deepEqual([step.course.next, step.delayMs >= 800], [next, true], what);
      }
    }
  });
}

test('the wait doubles from 0.8–1.6 s up to 15–30 s and stays there', () => {
  const delays = (random: () => number) => {
    let course = at('watch');
    return Array.from({ length: 50 }, () => {
      const step = nextStep(course, failure('unreachable'), { ...SHORT, random });
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

test('a list alone does not end a row of refusals; any answer ends a row of attempts without one', () => {
  assert.equal(nextStep(at('pages', { refusals: 5 }), { kind: 'listed' }, LISTING).course.refusals, 5);
  assert.equal(nextStep(at('watch', { misses: 9 }), status(500), SHORT).course.misses, 0);
});

test('a missing resource that an old server may lack is looked for again in minutes; any other in seconds', () => {
  const absent = nextStep(START, status(404), { ...LISTING, absentAt: [404] });
  assert.ok(absent.absent && absent.delayMs >= 300_000);
  const failing = nextStep(START, status(404), LISTING);
  assert.ok(!failing.absent && failing.delayMs < 2_000);
});
