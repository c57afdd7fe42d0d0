import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseWatchEvent, readPage } from '../../src/kubernetes/answers.ts';
import { added, bookmark, deleted, errorEvent, initialEventsEnd, modified, service } from './objects.ts';

function parse(event: unknown) {
  return parseWatchEvent(JSON.stringify(event));
}

test('the four kinds of events are read with their version', () => {
  const object = JSON.parse(JSON.stringify(service('web', { version: '7' })));
  assert.deepEqual(parse(added(object)), { type: 'changed', object, resourceVersion: '7' });
  assert.deepEqual(parse(modified(object)), { type: 'changed', object, resourceVersion: '7' });
  assert.deepEqual(parse(deleted(object)), { type: 'deleted', object, resourceVersion: '7' });
  assert.deepEqual(parse(bookmark('9')), { type: 'bookmark', resourceVersion: '9', endsInitialEvents: false });
  assert.deepEqual(parse(initialEventsEnd('9')), { type: 'bookmark', resourceVersion: '9', endsInitialEvents: true });
});

test('an ERROR event gives its code, message and patience', () => {
  assert.throws(() => parse(errorEvent(429, 'slow down', { retryAfterSeconds: 3 })), {
    ...{ name: 'ApiError', code: 'event', status: 429, message: 'slow down', retryAfterMs: 3_000 },
  });
  assert.throws(() => parse({ type: 'ERROR', object: 'broken' }), { code: 'event' });
});

const garbage: readonly [string, string][] = [
  ['half an object', '{"type":"ADDED","object":{"metad'],
  ['a web page', '<html><body>Sign in</body></html>'],
  ['a list', '[]'],
  ['null', 'null'],
  ['an unknown type', JSON.stringify({ type: 'RENAMED', object: service('web') })],
  ['a type that is an object', JSON.stringify({ type: {}, object: service('web') })],
  [
    'the name of a property of every object as its type',
    JSON.stringify({ type: 'constructor', object: service('web') }),
  ],
  ['no type', JSON.stringify({ object: service('web') })],
  ['no object', JSON.stringify({ type: 'ADDED' })],
  ['no version', JSON.stringify({ type: 'ADDED', object: { metadata: { name: 'web' } } })],
  ['a version that is a number', JSON.stringify({ type: 'BOOKMARK', object: { metadata: { resourceVersion: 5 } } })],
];

test('anything else is garbage, which gives a short message on one line', () => {
  for (const [what, line] of garbage) {
    assert.throws(() => parseWatchEvent(line), { name: 'ApiError', code: 'garbage' }, what);
  }
  assert.throws(
    () => parseWatchEvent(`first\u2028line\u0007${'x'.repeat(10_000)}`),
    ({ message }: Error) => message.length < 200 && !message.includes('\u0007'),
  );
});

test('only a list with a version is a page; null items are none', () => {
  const none = [{}, null, 'ok', { metadata: { resourceVersion: '1' }, items: {} }, { metadata: {}, items: [] }];
  for (const answer of none) assert.throws(() => readPage(answer), { code: 'garbage' }, JSON.stringify(answer));
  const page = readPage({ metadata: { resourceVersion: '1', continue: 'x' }, items: null });
  assert.deepEqual(page, { items: [], next: 'x', resourceVersion: '1' });
});
