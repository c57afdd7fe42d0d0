import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ASCII, line, span, spread } from '../../../src/client/top/frame.ts';

test('a line is filled up, or cut with a sign', () => {
  assert.deepEqual(line(5, [span('ab', 'bad')], ASCII), [span('ab', 'bad'), span('   ')]);
  assert.deepEqual(line(5, [span('abc'), span('defg', 'bad'), span('h')], ASCII), [span('abc'), span('d~', 'bad')]);
});

test('blanks are cut without a sign', () => {
  assert.deepEqual(line(5, [span('abcd'), span('   ')], ASCII), [span('abcd'), span(' ')]);
  assert.deepEqual(line(5, [span('abcd'), span('  e')], ASCII), [span('abcd'), span('~')]);
});

test('what is at the right gives way to what is at the left', () => {
  assert.deepEqual(spread(5, [span('ab')], [span('cd')], ASCII), [span('ab'), span(' '), span('cd')]);
  assert.deepEqual(spread(4, [span('ab')], [span('cd')], ASCII), [span('ab'), span('  ')]);
});
