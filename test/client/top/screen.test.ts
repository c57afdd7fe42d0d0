import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Line, span } from '../../../src/client/top/frame.ts';
import { AnsiScreen } from '../../../src/client/top/screen.ts';

class Recorder {
  written: string[] = [];
  readonly screen: AnsiScreen;

  constructor(hasColours = true) {
    this.screen = new AnsiScreen({
      size: () => ({ columns: 3, rows: 3 }),
      write: (text) => this.written.push(text),
      hasColours,
    });
  }

  show(...lines: readonly Line[]): string | undefined {
    this.written = [];
    this.screen.show(lines);
    assert.ok(this.written.length <= 1, 'more than one write');
    return this.written[0];
  }
}

const ESC = '\u001b[';

describe('a screen', () => {
  test('writes only the lines that are not there', () => {
    const recorder = new Recorder();
    assert.equal(recorder.show([span('abc')], [span('def')]), `${ESC}1;1Habc${ESC}2;1Hdef`);
    assert.equal(recorder.show([span('abc')], [span('xyz')]), `${ESC}2;1Hxyz`);
    assert.equal(recorder.show([span('abc')], [span('xyz')]), undefined);
  });

  test('writes everything after it was cleared', () => {
    const recorder = new Recorder();
    recorder.show([span('abc')]);
    recorder.screen.clear();
    assert.deepEqual(recorder.written.at(-1), `${ESC}2J`);
    assert.equal(recorder.show([span('abc')]), `${ESC}1;1Habc`);
  });

  test('lets no text of a frame steer the terminal', () => {
    assert.equal(
      new Recorder().show([span('a\u001b[2J\u009b█', 'bad')]),
      `${ESC}1;1H${ESC}1;31ma\\u001b[2J\\u009b█${ESC}m`,
    );
  });

  test('ends each style where its text ends', () => {
    assert.equal(new Recorder().show([span('a', 'bad'), span('b')]), `${ESC}1;1H${ESC}1;31ma${ESC}mb`);
  });

  test('uses no colours where they are not wanted, yet shows what is selected', () => {
    const recorder = new Recorder(false);
    assert.equal(recorder.show([span('a', 'good'), span('b', 'selected')]), `${ESC}1;1Ha${ESC}7mb${ESC}m`);
  });
});
