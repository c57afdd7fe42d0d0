import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { closeSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { createLog, type LogOptions } from '../../../src/operate/log/log.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

function memoryOutput({ isTTY = false } = {}) {
  const lines: string[] = [];
  return { lines, isTTY, write: (line: string) => void lines.push(line) };
}

function logInto(output: LogOptions['output'], options: Partial<LogOptions> = {}) {
  const clock = new ManualClock(Date.UTC(2026, 10, 20, 5, 23, 36, 843));
  return createLog({ verbosity: 0, format: 'json', output, clock, ...options });
}

async function linesOf(options: Partial<LogOptions>, write: (log: ReturnType<typeof createLog>) => void) {
  const output = memoryOutput(options.output);
  const log = logInto(output, { ...options, output });
  write(log);
  await log.flush();
  return output.lines;
}

describe('JSON', () => {
  test('is one object per line with time, level, verbosity, message and fields', async () => {
    const lines = await linesOf({ verbosity: 4 }, (log) => {
      log.info('one', { svc: 'default/web', port: 30_000, ok: true, err: undefined });
      log.v(4)?.info('two');
      log.warn('three');
      log.error('four');
    });
    const ts = '2026-11-20T05:23:36.843Z';
    assert.deepEqual(
      lines.map((line) => JSON.parse(line)),
      [
        { ts, level: 'info', v: 0, msg: 'one', svc: 'default/web', port: 30_000, ok: true },
        { ts, level: 'info', v: 4, msg: 'two' },
        { ts, level: 'warn', v: 0, msg: 'three' },
        { ts, level: 'error', v: 0, msg: 'four' },
      ],
    );
    for (const line of lines) assert.equal(line.indexOf('\n'), line.length - 1);
  });

  test('keeps its own keys when a field has the same name', async () => {
    const fields = JSON.parse('{"msg":"x","level":"y","v":9,"constructor":"c","message":"m"}');
    const [line = ''] = await linesOf({}, (log) => log.info('real', fields));
    const parsed = JSON.parse(line);
    assert.deepEqual([parsed.msg, parsed.level, parsed.v], ['real', 'info', 0]);
    assert.deepEqual([parsed.msg_, parsed.level_, parsed.v_], ['x', 'y', 9]);
    assert.deepEqual([parsed.constructor, parsed.message], ['c', 'm']);
  });
});

test('text is time, level, message and fields, quoted only where they need it', async () => {
  const lines = await linesOf({ format: 'text' }, (log) => {
    log.warn('No endpoint', { svc: 'default/web:http', client: '[2001:db8::1]:80', n: 3, none: undefined });
    log.error('Cannot', { err: 'connect "x"', empty: '', pair: 'a=b' });
    log.info('Up');
  });
  assert.deepEqual(lines, [
    '05:23:36.843 W No endpoint svc=default/web:http client=[2001:db8::1]:80 n=3\n',
    '05:23:36.843 E Cannot err="connect \\"x\\"" empty="" pair="a=b"\n',
    '05:23:36.843 I Up\n',
  ]);
});

describe('hostile text', () => {
  const hostile = 'a\nb\r\t\u001b[2J\u0000\u007f\u009b31m\u2028\u2029\u202e\u200b\u{e0001}"\\';

  for (const format of ['text', 'json'] as const) {
    test(`in a message or a field breaks no ${format} line and reaches no terminal raw`, async () => {
      const lines = await linesOf({ format }, (log) => log.warn(hostile, { err: hostile }));
      assert.equal(lines.length, 1);
      const [line = ''] = lines;
      assert.doesNotMatch(line.slice(0, -1), /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
      assert.equal(line.at(-1), '\n');
    });
  }

  test('is unchanged after JSON parsing', async () => {
    const [line = ''] = await linesOf({ format: 'json' }, (log) => log.warn(hostile, { err: hostile }));
    assert.deepEqual([JSON.parse(line).msg, JSON.parse(line).err], [hostile, hostile]);
  });
});

test('auto is text on a terminal and JSON elsewhere; text and json do not depend on it', async () => {
  const isText = async (format: LogOptions['format'], isTTY: boolean) => {
    const [line = ''] = await linesOf({ format, output: memoryOutput({ isTTY }) }, (log) => log.info('x'));
    return !line.startsWith('{');
  };
  assert.equal(await isText('auto', true), true);
  assert.equal(await isText('auto', false), false);
  assert.equal(await isText('json', true), false);
  assert.equal(await isText('text', false), true);
});

test('v(n) is logged up to the verbosity, which can change; the text of other lines is not computed', async () => {
  let evaluated = 0;
  const expensive = (text: string) => {
    evaluated++;
    return text;
  };
  const lines = await linesOf({ verbosity: 2 }, (log) => {
    for (const level of [0, 2, 3]) log.v(level)?.info(expensive(`at 2: ${level}`));
    log.setVerbosity(5);
    log.v(5)?.info(expensive('at 5: 5'));
    assert.equal(log.verbosity, 5);
    log.setVerbosity(0);
    log.v(1)?.info(expensive('at 0: 1'));
  });
  const messages = lines.map((line) => JSON.parse(line).msg);
  assert.deepEqual(messages, ['at 2: 0', 'at 2: 2', 'at 5: 5']);
  assert.equal(evaluated, 3);
});

test('lines are counted by level, lost ones too; the log goes on after an error', async () => {
  const written: string[] = [];
  let broken = true;
  const log = logInto({
    isTTY: false,
    write: (line) => {
      if (broken) throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
      written.push(line);
    },
  });
  log.info('lost');
  log.warn('lost too');
  await log.flush();
  assert.equal(log.droppedLines, 2);
  assert.equal(log.events.length, 2, 'recent events remember them');
  broken = false;
  log.info('kept');
  log.v(9)?.info('not wanted');
  await log.flush();
  assert.deepEqual([log.droppedLines, written.length], [2, 1]);
  assert.deepEqual(log.lines, { error: 0, warn: 1, info: 2 });
});

describe('recent events', () => {
  const setUp = () => logInto(memoryOutput(), { verbosity: 4 });

  test('are the lines of verbosity 0, with time and fields', () => {
    const log = setUp();
    log.info('Started', { version: '1', node: undefined });
    log.v(4)?.info('detail');
    log.warn('Odd');
    log.error('Wrong', { err: 'x', tries: 3 });
    const at = Date.UTC(2026, 10, 20, 5, 23, 36, 843);
    assert.deepEqual(log.events, [
      { id: 1, at, level: 'info', message: 'Started', fields: { version: '1' } },
      { id: 2, at, level: 'warn', message: 'Odd', fields: {} },
      { id: 3, at, level: 'error', message: 'Wrong', fields: { err: 'x', tries: 3 } },
    ]);
  });

  test('are the last 300, with increasing numbers', () => {
    const log = setUp();
    for (let n = 1; n <= 301; n++) log.info(`line ${n}`);
    assert.deepEqual([log.events.length, log.events[0]?.id, log.events.at(-1)?.id], [300, 2, 301]);
  });

  test('are short and have no control characters', () => {
    const log = setUp();
    log.error('x'.repeat(10_000), { err: 'y'.repeat(10_000) });
    log.warn('Odd \u001b[2J', { err: 'from the server: \u009b31m\u202e\n' });
    const [long, odd] = log.events;
    assert.deepEqual([long?.message.length, String(long?.fields['err']).length], [501, 501]);
    assert.equal(odd?.message, 'Odd \\u001b[2J');
    assert.equal(odd?.fields['err'], 'from the server: \\u009b31m\\u202e\\u000a');
  });
});

describe('a program that logs', () => {
  const script = (body: string) => `
    import { createLog } from ${JSON.stringify(new URL('../../../src/operate/log/log.ts', import.meta.url).href)};
    import { descriptorOutput } from ${JSON.stringify(new URL('../../../src/operate/log/output.ts', import.meta.url).href)};
    const clock = { wallNow: () => 0 };
    const log = createLog({ verbosity: 0, format: 'json', output: descriptorOutput(2), clock });
    ${body}`;
  const args = (body: string) => ['--input-type=module', '--eval', script(body)];

  test('loses no line on exit after flush', () => {
    const file = join(tmpdir(), `log-${process.pid}`);
    const fd = openSync(file, 'w');
    try {
      execFileSync(
        process.execPath,
        args(`for (let i = 0; i < 5000; i++) log.info('line ' + i); await log.flush(); process.exit(0);`),
        { stdio: ['ignore', 'ignore', fd] },
      );
      const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
      assert.equal(lines.length, 5_000);
      assert.equal(JSON.parse(lines.at(-1) ?? '').msg, 'line 4999');
    } finally {
      closeSync(fd);
      rmSync(file);
    }
  });

  test('survives a full disk', () => {
    const full = openSync('/dev/full', 'w');
    try {
      const { status, stdout } = spawnSync(
        process.execPath,
        args(`log.info('x'); await log.flush(); console.log(log.droppedLines);`),
        { stdio: ['ignore', 'pipe', full], encoding: 'utf8' },
      );
      assert.deepEqual([status, stdout], [0, '1\n']);
    } finally {
      closeSync(full);
    }
  });

  test('survives the end of its reader', async () => {
    const body = `process.stdin.once('data', async () => {
      log.info('x'); await log.flush(); console.log(log.droppedLines); process.exit(0);
    });`;
    const child = spawn(process.execPath, args(body), { stdio: ['pipe', 'pipe', 'pipe'] });
    child.stderr.destroy();
    child.stdin.write('go\n');
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', (text) => {
      printed += text;
    });
    const code = await new Promise((resolve) => child.on('close', resolve));
    assert.deepEqual([code, printed], [0, '1\n']);
  });
});
