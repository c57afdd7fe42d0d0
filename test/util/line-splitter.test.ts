import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LineSplitter, LineTooLongError } from '../../src/util/line-splitter.ts';

function linesOf(splitter: LineSplitter, ...chunks: string[]): string[] {
  return chunks.flatMap((chunk) => [...splitter.push(Buffer.from(chunk))]);
}

test('lines come out whole however the bytes are cut', () => {
  assert.deepEqual(linesOf(new LineSplitter(100), 'one\ntwo\nthr', 'e', 'e\n'), ['one', 'two', 'three']);
});

test('a character that is cut between chunks stays what it is', () => {
  const bytes = Buffer.from('a→b\n');
  const splitter = new LineSplitter(100);
  assert.deepEqual([...splitter.push(bytes.subarray(0, 2)), ...splitter.push(bytes.subarray(2))], ['a→b']);
});

test('an unfinished line is not given out', () => {
  assert.deepEqual(linesOf(new LineSplitter(100), 'whole\nhalf'), ['whole']);
});

test('empty lines and carriage returns are dropped', () => {
  assert.deepEqual(linesOf(new LineSplitter(100), '\r\n\none\r\n'), ['one']);
});

test('a line over the limit fails as soon as it is over, before its end', () => {
  const splitter = new LineSplitter(10);
  assert.deepEqual(linesOf(splitter, '0123456789\n'), ['0123456789']);
  assert.throws(() => linesOf(splitter, '01234', '567890'), LineTooLongError);
});
