import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, beforeEach, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type ExecHelper, type ExecHelperOptions, startExecHelper } from '../../../src/kernel/iptables/exec-helper.ts';
import { encodeRequest } from '../../../src/kernel/iptables/helper/protocol.ts';
import { moduleCommand } from '../../../src/kernel/iptables/helper-command.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { isAlive } from '../../support/process-state.ts';
import { settle, until } from '../../support/until.ts';
import { sh } from './sh.ts';

const HELPER = fileURLToPath(new URL('../../../src/kernel/iptables/helper/main.ts', import.meta.url));

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'kup-helper-'));
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

const release = () => writeFileSync(path('go'), '');

describe('the helper process', () => {
  let clock: ManualClock;
  let log: RecordingLog;
  let helper: ExecHelper;

  const start = (options: Partial<ExecHelperOptions> = {}) => {
    helper = startExecHelper({ clock, log, ...options });
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

  test('leaves no timer behind a request', async () => {
    start();
    await output('exit 0');
    assert.equal(clock.pendingTimers, 0);
  });

  test('that is killed fails the request that it has, and its successor serves the next one', async () => {
    start();
    const first = helper.pid;
    const pending = helper.exec(slow());
    const queued = helper.exec(sh('echo queued'));
    await exists('begun');
    process.kill(first!, 'SIGKILL');
    assert.deepEqual(await pending, {
      outcome: 'failed',
      err: 'the helper process that starts programs is gone; it ended by SIGKILL',
    });
    assert.deepEqual(log.of('error'), [
      {
        level: 'error',
        message: 'The helper process that starts iptables is gone; another one takes its place',
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

  test('that is killed while it is being asked fails that request, and nothing else', async () => {
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
    start({ command: moduleCommand(pathToFileURL(entry)) });
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

  test('that cannot run says why', async () => {
    start({ command: moduleCommand(pathToFileURL(path('no-such-entry.mjs'))) });
    const result = await helper.exec(sh('exit 0'));
    assert.ok(
      result.outcome === 'failed' && /it ended with 1: .*no-such-entry/.test(result.err),
      JSON.stringify(result),
    );
  });

  for (const [what, script] of [
    ['that answers nonsense', 'process.stdin.once("data", () => console.log("hello"))'],
    ['that answers without being asked', 'console.log("hello"); process.stdin.resume()'],
  ]) {
    test(`${what} is killed and replaced`, async () => {
      const entry = path('entry.mjs');
      writeFileSync(entry, script!);
      start({ command: moduleCommand(pathToFileURL(entry)) });
      const { pid } = helper;
      const result = await helper.exec(sh('exit 0'));
      assert.ok(result.outcome === 'failed' && /said what nobody understands/.test(result.err), JSON.stringify(result));
      await isGone(pid!);
      assert.equal(log.of('error').length, 1);
    });
  }

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
      err: 'the helper process that starts programs is gone; it did not answer in time',
    });
    await isGone(pid!);
    release();
    clock.advance(100);
    assert.equal(await output('echo again'), 'again');
  });

  test('for which there is no descriptor left is started once there is', async () => {
    start();
    await output('exit 0');
    process.kill(helper.pid!, 'SIGKILL');
    await until('it is noticed', () => log.of('error').length === 1);
    const waiting = helper.exec(sh('exit 0'));
    const held: number[] = [];
    try {
      assert.throws(() => {
        for (;;) held.push(openSync('/dev/null', 'r'));
      }, /EMFILE/);
      clock.advance(100);
      const result = await waiting;
      assert.ok(result.outcome === 'failed' && /EMFILE/.test(result.err), JSON.stringify(result));
    } finally {
      for (const descriptor of held) closeSync(descriptor);
    }
    clock.advance(200);
    assert.equal(await output('echo again'), 'again');
  });

  test('that cannot even be asked for is started once it can', async () => {
    start();
    await output('exit 0');
    process.kill(helper.pid!, 'SIGKILL');
    await until('it is noticed', () => log.of('error').length === 1);
    const waiting = helper.exec(sh('exit 0'));
    await settle();
    // More than the kernel takes: one of the errors that Node throws.
    process.env['KUP_TEST_TOO_BIG'] = 'x'.repeat(1 << 20);
    clock.advance(100);
    delete process.env['KUP_TEST_TOO_BIG'];
    assert.equal((await waiting).outcome, 'failed');
    assert.match(String(log.of('error')[1]?.fields['err']), /E2BIG/);
    clock.advance(200);
    assert.equal(await output('echo again'), 'again');
  });

  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
    test(`${signal} does not end it, nor what it runs`, async () => {
      start();
      const pending = helper.exec(slow());
      await exists('begun');
      process.kill(helper.pid!, signal);
      release();
      const result = await pending;
      assert.equal(result.outcome === 'exited' && result.stdout, 'done\n');
      assert.equal(await output('echo $PPID'), String(helper.pid));
    });
  }

  test('closed, it finishes what it runs and answers, and ends', async () => {
    start();
    const pid = helper.pid!;
    const pending = helper.exec(slow('x'.repeat(1 << 20)));
    await exists('begun');
    helper.close();
    release();
    const result = await pending;
    assert.equal(result.outcome === 'exited' && result.stdout, 'done\n');
    await isGone(pid);
    assert.deepEqual(log.lines, []);
    assert.equal((await helper.exec(sh('exit 0'))).outcome, 'failed');
    assert.equal(clock.pendingTimers, 0);
  });

  test('closed, it says all that it has to say', async () => {
    start();
    const pid = helper.pid!;
    const text = 'x'.repeat(4 << 20);
    const pending = helper.exec(sh('cat', text));
    await settle();
    helper.close();
    const result = await pending;
    assert.ok(result.outcome === 'exited' && result.stdout === text, result.outcome);
    await isGone(pid);
  });

  test('closed while none runs, nobody is started or waited for', async () => {
    start();
    await output('exit 0');
    process.kill(helper.pid!, 'SIGKILL');
    await until('it is noticed', () => log.of('error').length === 1);
    const waiting = helper.exec(sh('exit 0'));
    await settle();
    helper.close();
    assert.equal((await waiting).outcome, 'failed');
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
      `import { startExecHelper } from ${source('kernel/iptables/exec-helper.ts')};
       import { systemClock as clock } from ${source('util/system-clock.ts')};
       const helper = startExecHelper({ clock, log: { error() {} } });
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

  test('ends with it when it has nothing to do', async () => {
    await startMain();
    main.kill('SIGKILL');
    await isGone(helperPid);
  });

  test('finishes what it runs, and ends then', async () => {
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

  test('does not mind that nobody reads the answer', async () => {
    const helper = spawn(process.execPath, [HELPER], { stdio: ['pipe', 'pipe', 'inherit'] });
    for (const piece of encodeRequest(slow(), 60_000)) helper.stdin.write(piece);
    await exists('begun');
    helper.stdout.destroy();
    helper.stdin.end();
    release();
    const [code] = await once(helper, 'close');
    assert.equal(code, 0);
    assert.ok(existsSync(path('finished')));
  });

  test('never runs half of a request', async () => {
    const helper = spawn(process.execPath, [HELPER], { stdio: ['pipe', 'pipe', 'inherit'] });
    const request = Buffer.concat(encodeRequest(sh(`: >'${path('ran')}'`, 'abc'), 60_000));
    helper.stdin.end(request.subarray(0, request.length - 1));
    const [code] = await once(helper, 'close');
    assert.equal(code, 0);
    assert.ok(!existsSync(path('ran')));
  });
});
