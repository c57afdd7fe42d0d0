import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { StatusLine } from '../../../src/operate/log/output.ts';

const ERASE = '\r\x1b[2K';

function terminal({ isTTY = true, fails = false } = {}) {
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
    () => 80,
  );
  return { line, text: () => text, writes: () => writes };
}

describe('the status line', () => {
  const cases: readonly (readonly [what: string, draw: (line: StatusLine) => void, text: string])[] = [
    [
      'replaces the last one, and is not drawn again when it is the same',
      (line) => {
        for (const text of ['one', 'one', 'two']) line.show(text);
      },
      `${ERASE}one${ERASE}two`,
    ],
    [
      'gives way to lines that stay, and comes back below them',
      (line) => {
        line.show('one');
        line.write('log\n');
        line.write('log\n');
        line.show('one');
      },
      `${ERASE}one${ERASE}log\nlog\n${ERASE}one`,
    ],
    [
      'is erased once',
      (line) => {
        line.show('one');
        line.clear();
        line.clear();
      },
      `${ERASE}one${ERASE}`,
    ],
    ['never reaches the edge, where it would wrap', (line) => line.show('x'.repeat(90)), ERASE + 'x'.repeat(79)],
  ];
  for (const [what, draw, expected] of cases) {
    test(what, () => {
      const { line, text } = terminal();
      draw(line);
      assert.equal(text(), expected);
    });
  }

  test('is not drawn where there is no terminal, while lines of the log are written', () => {
    const { line, text } = terminal({ isTTY: false });
    line.show('one');
    line.write('log\n');
    line.clear();
    assert.equal(text(), 'log\n');
  });

  test('is not drawn any more on a terminal that is gone; log lines still throw, so they are counted', () => {
    const { line, writes } = terminal({ fails: true });
    line.show('one');
    line.show('two');
    line.clear();
    assert.equal(writes(), 1);
    assert.throws(() => line.write('log\n'), /EIO/);
  });
});

test('a stopped reader loses lines and does not block the process', async () => {
  // Without winston, which might do this by itself.
  const body = `
    const { descriptorOutput } = await import(${JSON.stringify(new URL('../../../src/operate/log/output.ts', import.meta.url).href)});
    const output = descriptorOutput(2);
    let dropped = 0;
    for (let i = 0; i < 5000; i++) {
      try { output.write('x'.repeat(1000) + '\\n'); } catch { dropped++; }
    }
    console.log(dropped > 0);`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', body], {
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 60_000,
  });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    printed += text;
  });
  const [[code]] = await Promise.all([once(child, 'exit'), once(child.stdout, 'end')]);
  child.stderr.destroy();
  assert.deepEqual([code, printed], [0, 'true\n']);
});

test('a line that was cut off is not joined with the next one', () => {
  const { stdout, status } = spawnSync(
    process.execPath,
    [
      '--input-type=module',
      '--eval',
      `
      import fs from 'node:fs';
      import { syncBuiltinESMExports } from 'node:module';
      const real = fs.writeSync;
      let calls = 0;
      fs.writeSync = (fd, bytes, offset) => {
        calls++;
        if (calls === 1) return real(fd, bytes, offset, 3);
        if (calls === 2 || calls === 3) throw new Error('ENOSPC');
        return real(fd, bytes, offset, Math.min(4, bytes.length - offset));
      };
      syncBuiltinESMExports();
      const { descriptorOutput } = await import(${JSON.stringify(new URL('../../../src/operate/log/output.ts', import.meta.url).href)});
      const output = descriptorOutput(1);
      try { output.write('first line\\n'); } catch {}
      try { output.write('lost\\n'); } catch {}
      output.write('second line\\n');
      output.write('third line\\n');
      calls = 2;
      try { output.write('lost\\n'); } catch {}
      output.write('fourth line\\n');`,
    ],
    { encoding: 'utf8' },
  );
  assert.deepEqual([status, stdout], [0, 'fir\nsecond line\nthird line\nfourth line\n']);
});
