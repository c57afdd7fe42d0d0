import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { createExec, type Exec, type ExecRequest } from '../../../src/kernel/iptables/exec.ts';
import { ExecHelper, type ExecHelperOptions } from '../../../src/kernel/iptables/exec-helper.ts';
import { systemClock } from '../../../src/util/system-clock.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { isAlive } from '../../support/processes.ts';
import { settle, until } from '../../support/until.ts';

/** A shell script as a request. */
function sh(script: string, input?: string): ExecRequest {
  return { program: 'sh', args: ['-c', script], ...(input === undefined ? {} : { input }) };
}

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kup-exec-'));
});
// A program whose helper was killed may still write there for a moment.
afterEach(() => rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));

const path = (name: string) => join(directory, name);
const exists = (name: string) => until(`${name} exists`, () => existsSync(path(name)));
const isGone = (pid: number) => until(`process ${pid} has ended`, () => !isAlive(pid));

/** A program that, like an iptables-restore waiting for its lock, reads and finishes when it is allowed to. */
const slow = (input = '') =>
  sh(
    `: >'${path('begun')}'; while [ -d '${directory}' ] && [ ! -e '${path('go')}' ]; do sleep 0.01; done
     cat >'${path('input')}'; : >'${path('finished')}'; echo done`,
    input,
  );

/** Returns what gives them back. */
function takeAllDescriptors(): () => void {
  const held: number[] = [];
  assert.throws(() => {
    for (;;) held.push(openSync('/dev/null', 'r'));
  }, /EMFILE/);
  return () => held.forEach(closeSync);
}

const release = () => writeFileSync(path('go'), '');

interface Implementation {
  readonly exec: Exec;
  close(): void;
}

const IMPLEMENTATIONS: readonly [name: string, create: (options?: { timeoutMs: number }) => Implementation][] = [
  ['as our own child', (options) => ({ exec: createExec({ clock: systemClock, ...options }), close: () => {} })],
  ['in the helper', (options) => new ExecHelper({ clock: systemClock, log: new RecordingLog(), ...options })],
];

for (const [name, create] of IMPLEMENTATIONS) {
  describe(`running a program ${name}`, () => {
    let implementation: Implementation;
    const exec: Exec = (request) => implementation.exec(request);
    before(() => {
      implementation = create();
    });
    after(() => implementation.close());

    test('passes megabytes in and out, byte for byte, with the code and untranslated messages', async () => {
      const bytes = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code)).join('');
      const text = bytes.repeat(1 << 14);
      const result = await exec(sh('cat; echo $LC_ALL >&2; exit 3', text));
      assert.ok(result.outcome === 'exited' && result.stdout === text, result.outcome);
      assert.deepEqual([result.code, result.stderr], [3, 'C\n']);
    });

    test('passes arguments as they are: no shell reads them', async () => {
      const result = await exec({ program: 'printf', args: ['%s|', 'a b', '$(id)', ';', '*', '\u00fc\n'] });
      assert.equal(
        result.outcome === 'exited' && Buffer.from(result.stdout, 'latin1').toString(),
        'a b|$(id)|;|*|ü\n|',
      );
    });

    test('keeps only the end of stderr', async () => {
      const result = await exec(sh('head -c 100000 /dev/zero | tr "\\0" x >&2; echo; echo the end >&2'));
      assert.ok(result.outcome === 'exited');
      assert.equal(result.stderr.length, 4096);
      assert.match(result.stderr, /the end\n$/);
    });

    test('reports every end of a program', async () => {
      assert.deepEqual(await exec({ program: 'kup-no-such-program', args: [] }), { outcome: 'missing' });
      const denied = await exec({ program: '/etc/passwd', args: [] });
      assert.ok(denied.outcome === 'failed' && /EACCES/.test(denied.err));
      const killed = await exec(sh('kill -9 $$'));
      assert.ok(killed.outcome === 'exited' && killed.code === null);
      const unread = await exec(sh('exit 0', 'x'.repeat(1 << 20)));
      assert.deepEqual(unread, { outcome: 'exited', code: 0, stdout: '', stderr: '' });
    });

    test('is ended at the deadline with all that it has started, and the next one runs', async () => {
      const timed = create({ timeoutMs: 3000 });
      const pids = path('pids');
      const result = timed.exec(sh(`sleep 600 & echo $$ $! > '${pids}.new'; mv '${pids}.new' '${pids}'; wait`));
      await until('both have started', () => existsSync(pids));
      const [shell = 0, sleeper = 0] = readFileSync(pids, 'utf8').split(' ').map(Number);
      assert.deepEqual(await result, { outcome: 'timeout', timeoutMs: 3000 });
      await until('both have ended', () => !isAlive(shell) && !isAlive(sleeper));
      const next = await timed.exec(sh('echo next'));
      assert.equal(next.outcome === 'exited' && next.stdout, 'next\n');
      timed.close();
    });

    test('is done one at a time, in the order of the requests', async () => {
      const journal = path('journal');
      const step = (n: number) =>
        exec(sh(`echo begin ${n} >> '${journal}'; sleep 0.02; echo end ${n} >> '${journal}'`));
      await Promise.all([step(1), exec({ program: 'kup-no-such-program', args: [] }), step(2), step(3)]);
      const expected = [1, 2, 3].map((n) => `begin ${n}\nend ${n}\n`).join('');
      assert.equal(readFileSync(journal, 'utf8'), expected);
    });
  });
}

describe('running a program as our own child', () => {
  test('measures its deadline with the given clock', async () => {
    const clock = new ManualClock();
    const timed = createExec({ clock, timeoutMs: 5000 });
    const started = path('started');
    const result = timed(sh(`echo $$ > ${started}.new; mv ${started}.new ${started}; sleep 600`));
    await until('it has started', () => existsSync(started));
    clock.advance(4999);
    assert.ok(isAlive(Number(readFileSync(started, 'utf8'))));
    clock.advance(1);
    assert.deepEqual(await result, { outcome: 'timeout', timeoutMs: 5000 });
    assert.equal((await timed(sh('exit 0'))).outcome, 'exited');
    assert.equal(clock.pendingTimers, 0);
  });

  test('survives that no descriptor is left to start it with', async () => {
    const exec = createExec({ clock: systemClock });
    const release = takeAllDescriptors();
    try {
      const result = await exec(sh('exit 0'));
      assert.ok(result.outcome === 'failed' && /EMFILE/.test(result.err));
    } finally {
      release();
    }
    assert.equal((await exec(sh('exit 0'))).outcome, 'exited');
  });
});

describe('the helper process', () => {
  let clock: ManualClock;
  let log: RecordingLog;
  let helper: ExecHelper;

  const start = (options: Partial<ExecHelperOptions> = {}) => {
    helper = new ExecHelper({ clock, log, ...options });
    return helper;
  };

  beforeEach(() => {
    clock = new ManualClock();
    log = new RecordingLog();
  });
  afterEach(() => helper.close());

  const output = async (script: string) => {
    const result = await helper.exec(sh(script));
    assert.equal(result.outcome, 'exited', JSON.stringify(result));
    return result.outcome === 'exited' ? result.stdout.trim() : '';
  };

  test('starts the programs itself, in a session that our terminal does not reach', async () => {
    start();
    assert.equal(Number(await output('echo $PPID')), helper.pid);
    assert.notEqual(helper.pid, process.pid);
    const stat = readFileSync(`/proc/${helper.pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
    assert.deepEqual([Number(stat[2]), Number(stat[3])], [helper.pid, helper.pid], 'process group and session');
  });

  test('that is killed fails its current request, and the next helper serves the next one', async () => {
    start();
    const first = helper.pid;
    const pending = helper.exec(slow());
    const queued = helper.exec(sh('echo queued'));
    await exists('begun');
    process.kill(first!, 'SIGKILL');
    assert.deepEqual(await pending, {
      outcome: 'failed',
      err: 'the helper process that starts programs has ended: it ended by SIGKILL',
    });
    assert.deepEqual(log.of('error'), [
      {
        level: 'error',
        message: 'The helper process that starts iptables has ended; starting another one',
        fields: { err: 'it ended by SIGKILL', delayMs: 100 },
      },
    ]);
    release();
    await settle();
    clock.advance(99);
    assert.equal(helper.pid, first);
    clock.advance(1);
    assert.notEqual(helper.pid, first);
    const result = await queued;
    assert.equal(result.outcome === 'exited' && result.stdout, 'queued\n');
  });

  test('that is killed while idle is replaced without a request', async () => {
    start();
    await output('exit 0');
    process.kill(helper.pid!, 'SIGKILL');
    await until('it is noticed', () => log.of('error').length === 1);
    clock.advance(100);
    assert.equal(await output('echo again'), 'again');
  });

  test('that is killed while it receives a request fails only this request', async () => {
    start();
    await output('exit 0');
    const { pid } = helper;
    process.kill(pid!, 'SIGSTOP');
    const pending = helper.exec(sh('cat', 'x'.repeat(4 << 20)));
    await settle();
    process.kill(pid!, 'SIGKILL');
    assert.equal((await pending).outcome, 'failed');
    clock.advance(100);
    assert.equal(await output('echo again'), 'again');
  });

  test('that keeps dying is started less and less often, and a long life is forgiven', async () => {
    const entry = path('entry.mjs');
    writeFileSync(entry, 'process.exit(7)');
    start({ entry: pathToFileURL(entry) });
    const delays = async (count: number) => {
      const found: unknown[] = [];
      for (let n = 0; n < count; n++) {
        await until('it is noticed', () => log.of('error').length > 0);
        const [{ fields }] = log.lines.splice(0) as [RecordingLog['lines'][0]];
        assert.equal(fields['err'], 'it ended with 7');
        found.push(fields['delayMs']);
        clock.advance(Number(fields['delayMs']));
      }
      return found;
    };
    assert.deepEqual(await delays(8), [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    clock.advance(60_000);
    assert.deepEqual(await delays(2), [100, 200]);
  });

  test('that hangs is given up some time after the deadline of the program, and killed', async () => {
    start({ timeoutMs: 30_000 });
    const { pid } = helper;
    const pending = helper.exec(slow());
    await exists('begun');
    process.kill(pid!, 'SIGSTOP');
    clock.advance(34_999);
    assert.ok(isAlive(pid!));
    clock.advance(1);
    assert.deepEqual(await pending, {
      outcome: 'failed',
      err: 'the helper process that starts programs has ended: it did not answer in time',
    });
    await isGone(pid!);
    release();
    clock.advance(100);
    assert.equal(await output('echo again'), 'again');
  });

  for (const [code, makeImpossible] of [
    ['EMFILE', takeAllDescriptors],
    // An environment larger than the kernel allows: Node throws this error instead of emitting it.
    [
      'E2BIG',
      () => {
        process.env['KUP_TEST_TOO_BIG'] = 'x'.repeat(1 << 20);
        return () => delete process.env['KUP_TEST_TOO_BIG'];
      },
    ],
  ] as const) {
    test(`that cannot be started (${code}) is started once it can`, async () => {
      start();
      await output('exit 0');
      process.kill(helper.pid!, 'SIGKILL');
      await until('it is noticed', () => log.of('error').length === 1);
      const waiting = helper.exec(sh('exit 0'));
      await settle();
      const makePossible = makeImpossible();
      try {
        clock.advance(100);
        const result = await waiting;
        assert.ok(result.outcome === 'failed' && result.err.includes(code), JSON.stringify(result));
      } finally {
        makePossible();
      }
      clock.advance(200);
      assert.equal(await output('echo again'), 'again');
    });
  }

  test('signals end neither the helper nor the program that it runs', async () => {
    start();
    const pending = helper.exec(slow());
    await exists('begun');
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.kill(helper.pid!, signal);
    release();
    const result = await pending;
    assert.equal(result.outcome === 'exited' && result.stdout, 'done\n');
    assert.equal(await output('echo $PPID'), String(helper.pid));
  });

  test('when closed, finishes the program that it runs, and ends', async () => {
    start();
    const pid = helper.pid!;
    const pending = helper.exec(slow('x'.repeat(1 << 20)));
    await exists('begun');
    helper.close();
    release();
    assert.equal((await pending).outcome, 'failed');
    assert.ok(existsSync(path('finished')));
    await isGone(pid);
    assert.deepEqual(log.lines, []);
    assert.equal((await helper.exec(sh('exit 0'))).outcome, 'failed');
    assert.equal(clock.pendingTimers, 0);
  });
});

describe('the helper of a process that is killed', () => {
  let main: ChildProcess;
  let helperPid: number;

  /** Another process with a helper, to which it passes on one request if there is one. */
  async function startMain(request?: object): Promise<void> {
    const script = path('main.mjs');
    const source = (name: string) => JSON.stringify(new URL(`../../../src/${name}`, import.meta.url).href);
    writeFileSync(
      script,
      `import { ExecHelper } from ${source('kernel/iptables/exec-helper.ts')};
       import { systemClock as clock } from ${source('util/system-clock.ts')};
       const helper = new ExecHelper({ clock, log: { error() {} } });
       await helper.exec({ program: 'true', args: [] });
       console.log(helper.pid);
       ${request === undefined ? '' : `void helper.exec(${JSON.stringify(request)});`}`,
    );
    main = spawn(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = await once(main.stdout!, 'data');
    helperPid = Number(String(line));
    assert.ok(isAlive(helperPid));
  }

  after(() => main?.kill('SIGKILL'));

  test('ends with the process when idle', async () => {
    await startMain();
    main.kill('SIGKILL');
    await isGone(helperPid);
  });

  test('finishes the program that it runs, then ends', async () => {
    // More than a pipe holds, so that most of it has yet to come from the helper.
    const input = 'all of it\n'.repeat(100_000);
    await startMain(slow(input));
    await exists('begun');
    main.kill('SIGKILL');
    await once(main, 'exit');
    assert.ok(isAlive(helperPid));
    release();
    await exists('finished');
    assert.ok(readFileSync(path('input'), 'utf8') === input);
    await isGone(helperPid);
  });
});
