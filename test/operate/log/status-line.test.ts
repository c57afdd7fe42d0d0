import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { StatusLine } from '../../../src/operate/log/status-line.ts';

const ERASE = '\r\x1b[2K';

function terminal({ isTTY = true, columns = 80, fails = false } = {}) {
  let text = '';
  let writes = 0;
  const line = new StatusLine(
    {
      isTTY,
      write: (piece) => {
        writes++;
        if (fails) throw new Error('EIO');
        text += piece;
      },
    },
    () => columns,
  );
  return { line, text: () => text, writes: () => writes };
}

describe('a line that is drawn in place', () => {
  test('replaces the last one, and is not drawn again when it is the same', () => {
    const { line, text } = terminal();
    line.show('one');
    line.show('one');
    line.show('two');
    assert.equal(text(), `${ERASE}one${ERASE}two`);
  });

  test('gives way to lines that stay, and comes back below them', () => {
    const { line, text } = terminal();
    line.show('one');
    line.write('log\n');
    line.write('log\n');
    line.show('one');
    assert.equal(text(), `${ERASE}one${ERASE}log\nlog\n${ERASE}one`);
  });

  test('is erased once', () => {
    const { line, text } = terminal();
    line.show('one');
    line.clear();
    line.clear();
    assert.equal(text(), `${ERASE}one${ERASE}`);
  });

  test('never reaches the edge, where it would be wrapped', () => {
    const { line, text } = terminal({ columns: 5 });
    line.show('123456');
    assert.equal(text(), `${ERASE}1234`);
  });

  test('is not drawn where there is no terminal, while lines of the log are written', () => {
    const { line, text } = terminal({ isTTY: false });
    line.show('one');
    line.write('log\n');
    line.clear();
    assert.equal(text(), 'log\n');
  });

  test('is given up on a terminal that has gone; a line of the log still fails, for its dropping is counted', () => {
    const { line, writes } = terminal({ fails: true });
    line.show('one');
    line.show('two');
    line.clear();
    assert.equal(writes(), 1);
    assert.throws(() => line.write('log\n'), /EIO/);
  });
});
